"""What public scripts take from the network, made on the spot: data sets of their format, and a few small packages.

The corpus puts this folder on the path of every run; the scripts themselves are untouched.
"""

import os
import sys
from types import ModuleType

from isthmus._support.after_import import when_imported


class _Writer:
    """Stands for TensorBoard's SummaryWriter: nothing is logged."""

    def __init__(self, *arguments, **options):
        pass

    def __getattr__(self, name):
        return lambda *arguments, **options: None


def _torch():
    """torchvision's operators are built for CUDA in its wheel; its Python asks for two of them at import."""
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
    """Scripts that draw a bar ask for the width of the terminal."""
    return popen("echo 24 80" if command == "stty size" else command, *arguments)


os.popen = _terminal
when_imported("torch", _torch)
when_imported("torchvision.datasets", _torchvision)
