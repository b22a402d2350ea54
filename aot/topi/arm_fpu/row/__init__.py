"""One row of float32 data by a constant matrix."""
