"""Runs, their attempts (the fence), resume decisions and inventories."""
