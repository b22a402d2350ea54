"""Small models of the project's own with golden files; `python -m tests.models.make` writes them all.

`golden.manifest()` lists them, `golden.load_golden(name)` gives inputs and reference outputs.
"""
