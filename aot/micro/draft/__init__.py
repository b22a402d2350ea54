"""Drafts of board files, from what a user has: a linker script, or a devicetree."""
