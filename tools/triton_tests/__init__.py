"""Triton's own tests of its language, on tensors of the CPU."""
