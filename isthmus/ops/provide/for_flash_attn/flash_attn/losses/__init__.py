"""Losses of flash-attn."""
