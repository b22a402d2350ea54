"""The arithmetic of the references: TFLite's fixed point, and elementary functions bit-exact with their C libraries."""
