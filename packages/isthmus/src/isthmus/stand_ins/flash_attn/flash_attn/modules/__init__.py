"""flash-attn's attention modules."""
