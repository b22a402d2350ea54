"""ADD, MUL and DEQUANTIZE by vectors."""
