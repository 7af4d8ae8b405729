"""Triton kernels on any chip that can compile C.

Triton finds this package by its entry point ``triton.backends``. A kernel's TTIR is printed as C (``kernel``),
compiled by the system's compiler (``build``), and launched on the memory of CPU tensors, or of the host chip's
(``driver``).
"""
