"""Analyses of relay functions: what is known of their values, and which of them matter. They change nothing."""
