"""From planned layers to C files and metadata."""
