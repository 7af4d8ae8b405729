"""The c10d backend ``chip``: ``torch.distributed`` on chip tensors.

Collectives go through gloo, over the chip's own bytes where the driver has a host window and over copies of them
otherwise. The backend takes CPU tensors too. ReduceOp.AVG is a sum divided by the world size; sums of booleans are
their "or" and products their "and", as with NCCL; element types that gloo lacks are moved as bytes, and refused
by name where they would be reduced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus import _C

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Backend, Store, _DistributedBackendOptions

NAME = "chip"


def register() -> None:
    """Make ``chip`` a backend of ``torch.distributed``, which ``import torch`` has imported; the default for chips."""
    from torch.distributed import Backend as Names

    Names.register_backend(NAME, _create, extended_api=True, devices=["chip", "cpu"])


def _create(group: _DistributedBackendOptions, _: Backend.Options | None) -> Backend:
    options = _C.ChipBackendOptions()
    options._timeout = group.timeout
    options.group_name = group.group_id
    options.global_ranks_in_group = group.global_ranks_in_group
    return _C.ChipBackend(group.store, group.group_rank, group.group_size, options, _make_gloo)


def _make_gloo(store: Store, rank: int, size: int, options: Backend.Options) -> Backend:
    from torch.distributed import ProcessGroupGloo

    gloo = ProcessGroupGloo(store, rank, size, timeout=options._timeout)
    gloo.options.group_name = options.group_name
    gloo.options.global_ranks_in_group = options.global_ranks_in_group
    gloo._set_sequence_number_for_group()
    return gloo
