"""Checkpoints of any framework: converted, resharded, compared, without loading a model."""
