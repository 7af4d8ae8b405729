"""Transformer Engine's layers for Megatron on any accelerator, in PyTorch: linear layers, norms and attention.

They replace a missing Transformer Engine, so that ``--transformer-impl transformer_engine`` (the default) and
checkpoints of such models work. Megatron selects features by the version; this is the last one before fusible
operations. FP8 is not supported.
"""

from . import common, pytorch

__version__ = "1.12.0+isthmus"

__all__ = ["common", "pytorch", "__version__"]
