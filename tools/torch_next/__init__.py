"""Compare what the project stands on between two versions of PyTorch: ``make torch-next VERSION=2.16.0``."""
