"""Folder added to the module search path to provide grouped_gemm."""
