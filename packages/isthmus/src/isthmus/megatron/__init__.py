"""Megatron on the current accelerator: ``import isthmus.megatron`` before Megatron.

It redirects ``torch.cuda`` to the accelerator, replaces apex, flash-attn and the required parts of Transformer Engine
by isthmus.ops, and enables context parallelism. ``isthmus run --megatron pretrain_gpt.py ...`` does the same without
the import. ``isthmus megatron explain`` lists every patch.
"""

from isthmus.megatron.adaptor import FEATURE, adopt, undo

__all__ = ["FEATURE", "adopt", "undo"]

adopt()
