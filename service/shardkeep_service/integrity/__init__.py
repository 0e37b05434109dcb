"""Integrity: reading stored objects again, and what is found damaged, lost or healed."""
