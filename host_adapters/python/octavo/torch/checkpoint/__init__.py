"""The FP8 state in checkpoints."""
