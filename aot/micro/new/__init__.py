"""Projects around compiled models, a file a kind."""
