"""Folder added to the module search path to provide Transformer Engine to Megatron."""
