"""ADD, QUANTIZE and DEQUANTIZE, four bytes at a time."""
