"""The folder that stands on the module search path when Transformer Engine is provided to Megatron."""
