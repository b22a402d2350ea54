"""Resizing of images, detection of objects."""
