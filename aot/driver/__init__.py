"""The compiler driver: build.py turns a model into an Artifact; options.py holds what a user may choose."""
