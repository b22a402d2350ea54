"""Layers of neural networks: convolutions, matrix products, pooling, padding."""
