"""Helpers of graphs that Megatron imports."""

from typing import Any

import torch
from torch.utils import _pytree as pytree

from isthmus import _C


def make_weak_ref(value: Any) -> Any:
    """Return tensors over the same memory that do not keep it, in the same containers.

    Args:
        value: a tensor, or containers of tensors and other values, which are returned as they are. The memory belongs
            to a graph, which keeps it at its address.
    """
    return pytree.tree_map_only(torch.Tensor, _C.weak_reference, value)
