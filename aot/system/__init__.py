"""Interaction with this machine: starting programs, cache folders, executors."""
