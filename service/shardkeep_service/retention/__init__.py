"""Retention: which checkpoints are kept, by policies of projects and runs; the others are deleted, restorably."""
