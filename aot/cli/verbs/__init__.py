"""The verbs, one a file: NAME, command."""
