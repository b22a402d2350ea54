"""Recurrent layers of integers with SMLAD, and the functions of their gates."""
