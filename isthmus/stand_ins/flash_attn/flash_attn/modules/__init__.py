"""flash-attn's modules, as far as they are attention alone."""
