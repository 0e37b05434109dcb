"""Rebuilding a catalogue from its bucket alone."""
