"""The custom operators of MediaPipe's models, whose meaning is in MediaPipe's own kernels."""
