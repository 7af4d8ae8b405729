"""The folder that stands on the module search path when flash_attn is provided."""
