"""Runs images: on emulated boards, on this machine, with Zephyr."""
