"""The stored format, byte for byte as in docs/format.md: manifests, indexes, segments, codecs, values and load plans.

Pure and free of I/O; shared by the client and the service. Moving bytes is not here.
"""
