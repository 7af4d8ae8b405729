"""Helpers of graphs that Megatron imports."""

from typing import TypeVar

import torch
from torch.utils._pytree import tree_map_only

T = TypeVar("T")


def make_weak_ref(value: T) -> T:
    """Return tensors of the same memory without an autograd graph, which keep the memory in a graph's pool.

    Megatron gives up the memory of tensors that no Python function has saved for the backward pass. The layers here
    save them in operators, which Megatron does not see.
    """
    return tree_map_only(torch.Tensor, torch.Tensor.detach, value)
