"""Transformer Engine's layers for Megatron on any accelerator, in PyTorch: linear layers, norms and attention.

They stand in where Transformer Engine is absent, so that ``--transformer-impl transformer_engine`` (the default)
and checkpoints of such models work. Megatron asks by the version what it may use; this one is the last before the
fusible operations. FP8 is refused.
"""

from __future__ import annotations

from . import common, pytorch

__version__ = "1.12.0+isthmus"

__all__ = ["common", "pytorch", "__version__"]
