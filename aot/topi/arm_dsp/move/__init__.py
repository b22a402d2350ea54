"""Kernels that only move data."""
