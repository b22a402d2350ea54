"""The way from a model to an Artifact, on one page: build.py; what a user may ask for: options.py."""
