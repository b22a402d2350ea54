"""The command line: one file per verb, with heavy imports inside the verbs so that `aot --help` is fast."""
