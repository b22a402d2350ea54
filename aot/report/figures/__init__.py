"""What a model costs: bytes, instructions and estimated cycles, each with its owner."""
