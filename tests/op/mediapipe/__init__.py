"""Tests of MediaPipe's custom operators."""
