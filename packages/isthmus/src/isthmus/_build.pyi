"""Written by setup.py when the C++ core is built."""

TORCH_VERSION: str
KERNEL_CAPABILITY: str
