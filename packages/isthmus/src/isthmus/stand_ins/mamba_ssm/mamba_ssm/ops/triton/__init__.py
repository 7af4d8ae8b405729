"""Operators that mamba_ssm has in Triton."""
