"""Checks of a report's figures: baselines, budgets, differences."""
