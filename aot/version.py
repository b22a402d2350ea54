"""The version of the tool; part of every generated file's header."""

__version__ = "0.1.0"
