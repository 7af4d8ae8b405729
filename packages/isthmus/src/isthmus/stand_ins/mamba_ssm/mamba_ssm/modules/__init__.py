"""Layers of Mamba."""
