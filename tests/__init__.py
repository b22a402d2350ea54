"""Tests; the folders mirror aot/."""
