"""This machine: programs that are started, and folders that are kept."""
