DEFAULT_SETS = 4
"""Sets of made-up inputs, where nobody says how many."""
