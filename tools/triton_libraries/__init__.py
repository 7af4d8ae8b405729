"""Tests of libraries of Triton kernels, unmodified, on the host chip."""
