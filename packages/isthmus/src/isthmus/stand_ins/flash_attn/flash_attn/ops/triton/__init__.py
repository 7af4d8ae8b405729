"""Operators that flash-attn has in Triton."""
