"""From an Artifact and a Board to an image, and what can be read from images."""
