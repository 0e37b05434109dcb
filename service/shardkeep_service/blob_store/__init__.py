"""Blob stores: where bytes are kept, behind one protocol."""
