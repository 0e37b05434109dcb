"""The demo: a small GPT is killed in the middle of a save and continues exactly."""
