"""The version of the tool; part of every generated file's header."""

__version__ = "0.2.0"

DISTRIBUTION = "aot-micro"
"""What pip installs; the package and the command are called aot, a name that another project has in the registry."""
