"""Tables that are searched by key, hash or id."""
