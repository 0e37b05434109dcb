"""What users hold: clients, runs, attempts, checkpoints and saves. Imports no torch."""
