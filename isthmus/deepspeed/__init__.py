"""DeepSpeed on the accelerator that is here: ``import isthmus.deepspeed`` before anything of DeepSpeed.

DeepSpeed then has an accelerator object for it, handed over by DeepSpeed's own ``set_accelerator``; nothing of
DeepSpeed is replaced. ``isthmus run`` does the same to a script without the line, and so does
``DS_ACCELERATOR=chip`` in the environment. Where DeepSpeed has an accelerator of its own for the device (CUDA, XPU),
or ``DS_ACCELERATOR`` names another, nothing is done.
"""

from __future__ import annotations

from isthmus.deepspeed.adopt import FEATURE, adopt, undo

__all__ = ["FEATURE", "adopt", "undo"]

adopt()
