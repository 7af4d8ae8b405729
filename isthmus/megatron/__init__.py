"""Megatron on the accelerator that is here: ``import isthmus.megatron`` before anything of Megatron.

``torch.cuda`` then answers for the accelerator, isthmus.ops stands in for apex, flash-attn and the parts of
Transformer Engine that Megatron cannot do without, and context parallelism works. ``isthmus run --megatron
pretrain_gpt.py ...`` does the same to a script without the line; ``isthmus megatron explain`` prints every patch.
"""

from __future__ import annotations

from isthmus.megatron.adaptor import FEATURE, adopt, undo

__all__ = ["FEATURE", "adopt", "undo"]

adopt()
