"""Operators of Mamba and Mamba-2."""
