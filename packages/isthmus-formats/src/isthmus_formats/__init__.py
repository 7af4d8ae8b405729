"""Data sets and checkpoints between frameworks."""
