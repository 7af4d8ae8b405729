"""Folder added to the module search path to provide causal_conv1d."""
