"""State: variables that one run leaves for the next."""
