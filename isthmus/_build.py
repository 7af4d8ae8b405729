"""Written by setup.py."""

TORCH_VERSION = "2.13.0+cpu"
KERNEL_CAPABILITY = "AVX512"
