"""A constant of zeros may have a scale of 0."""
