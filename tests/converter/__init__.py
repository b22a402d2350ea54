"""Networks as today's TensorFlow converter writes them."""
