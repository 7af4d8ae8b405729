"""The suite that decides whether a chip implements the operator interface. It runs without PyTorch."""
