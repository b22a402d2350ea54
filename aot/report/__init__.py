"""What a run says: measured, compared with baselines and budgets, and shown."""

DEFAULT_SETS = 4
"""Sets of made-up inputs, where nobody says how many."""
