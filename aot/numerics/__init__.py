"""The arithmetic of the references: TFLite's fixed point, and elementary functions with the bits of the C libraries they use."""
