"""Layers of one position, which run once for each new row of a window that moves (--slide): weights take two bytes for speed."""
