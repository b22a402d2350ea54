"""From a model to an Artifact: build.py; what a user may choose: options.py."""
