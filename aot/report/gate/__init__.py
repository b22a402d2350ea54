"""Whether the figures may be what they are: baselines, budgets, differences."""
