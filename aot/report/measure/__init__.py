"""What a model computes, against what it should: inputs, references, comparison, the first operator that differs."""
