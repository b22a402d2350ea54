"""Movement of data: shapes, slices, copies, indices."""
