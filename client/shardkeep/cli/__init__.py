"""The command line `shardkeep`: looks at, compares, checks and moves checkpoints. Imports no torch."""
