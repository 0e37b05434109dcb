"""Checkpoints: open, sessions, manifests, validation, commit, load plans, and their later life."""
