"""Stand-ins for what public scripts download: data sets in their formats and a few small packages.

The corpus puts this folder on the Python path of every run; the scripts themselves are not edited.
"""

import os
import sys
from types import ModuleType

from isthmus_common.after_import import when_imported


class _Writer:
    """Stand-in for TensorBoard's SummaryWriter that logs nothing."""

    def __init__(self, *arguments, **options):
        pass

    def __getattr__(self, name):
        return lambda *arguments, **options: None


def _torch():
    """Define the two operators that torchvision looks up at import; its wheel has them for CUDA only."""
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    sys.modules[__name__].library = library
    tensorboard = ModuleType("torch.utils.tensorboard")
    tensorboard.SummaryWriter = _Writer
    sys.modules[tensorboard.__name__] = tensorboard


def _torchvision():
    import made_datasets

    for name in made_datasets.__all__:
        setattr(sys.modules["torchvision.datasets"], name, getattr(made_datasets, name))


def _terminal(command, *arguments, popen=os.popen):
    """Answer ``stty size``, which scripts with a progress bar call."""
    return popen("echo 24 80" if command == "stty size" else command, *arguments)


os.popen = _terminal
when_imported("torch", _torch)
when_imported("torchvision.datasets", _torchvision)
