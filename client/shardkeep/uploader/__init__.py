"""From staged bytes to a committed checkpoint: the staging arena and the upload pipeline. Imports no torch."""
