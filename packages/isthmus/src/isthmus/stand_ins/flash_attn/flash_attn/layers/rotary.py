"""Rotary position embedding."""

from isthmus.ops.rotary_embedding import apply_rotary_emb, apply_rotary_emb_kv_, apply_rotary_emb_qkv_

apply_rotary_emb_func = apply_rotary_emb

__all__ = ["apply_rotary_emb", "apply_rotary_emb_func", "apply_rotary_emb_kv_", "apply_rotary_emb_qkv_"]
