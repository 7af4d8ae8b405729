"""DeepSpeed on the current accelerator: ``import isthmus.deepspeed`` before DeepSpeed.

It sets DeepSpeed's accelerator by DeepSpeed's own ``set_accelerator``, without patches. ``isthmus run`` and
``DS_ACCELERATOR=chip`` do the same without the import. No effect if DeepSpeed supports the device itself (CUDA, XPU),
or ``DS_ACCELERATOR`` names another.
"""

from isthmus.deepspeed.adopt import FEATURE, adopt, undo

__all__ = ["FEATURE", "adopt", "undo"]

adopt()
