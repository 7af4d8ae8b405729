"""The c10d backend ``chip``: ``torch.distributed`` on chip tensors.

Collectives go through the driver's communicators, on streams of their own, where it has them. Otherwise, and with
``ISTHMUS_COLLECTIVES=gloo``, they go through gloo, over the chip's own bytes where the driver has a host window and
over copies of them where it has none; element types that gloo lacks are moved as bytes then, and refused by name
where they would be reduced. The backend takes CPU tensors too. Sums of booleans are their "or" and products their
"and", as with NCCL; integers have no average.
"""

from __future__ import annotations

import atexit
import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from isthmus import _C, options
from isthmus._support import restarts
from isthmus._support.patches import Scope
from isthmus.chip.patches import context_parallel, dtensor_attention, dtensor_random

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Backend, Store, _DistributedBackendOptions

NAME = "chip"

_scope = Scope("distributed")


def register() -> None:
    """Make ``chip`` a backend of ``torch.distributed``, and the one of groups made without naming any.

    ``import torch`` has imported ``torch.distributed``, so this imports nothing.
    """
    from torch.distributed import Backend as Names

    Names.register_backend(NAME, _create, extended_api=True, devices=["chip", "cpu"])
    if not _scope.patches:
        for module in ("torch.distributed", "torch.distributed.distributed_c10d"):
            _scope.replace(
                f"{module}.init_process_group",
                _with_default_backend,
                "without a backend PyTorch takes the accelerator's but calls it gloo, and DDP does not find it",
                expects=("backend",),
            )
        _scope.replace(
            "torch.nn.parallel.DistributedDataParallel._check_comm_hook",
            _with_bfloat16_hooks,
            "it refuses the hooks that compress to bfloat16 by their names, where there is no CUDA",
            expects=("self", "hook"),
        )
    dtensor_attention.install()
    dtensor_random.install()
    context_parallel.install()
    restarts.install()


def dump_flight_recorder(include_collectives: bool = True, only_active: bool = False) -> bytes:
    """The last operations that this process gave the driver, for PyTorch's flight-recorder tools.

    Written to ``<folder>/rank_<n>`` by each rank, ``python -m torch.distributed.flight_recorder.fr_trace <folder>``
    says where the ranks part. ``ISTHMUS_FLIGHT_RECORDER`` says how many are kept.

    Args:
        include_collectives: the operations; False leaves the groups and how far they are.
        only_active: leaves out what has completed.

    Returns:
        A pickle, of plain values only.
    """
    return _C.dump_flight_recorder(include_collectives, only_active)


def unregister_default() -> None:
    """Leave groups made without naming a backend to PyTorch again."""
    _scope.undo()


def _with_default_backend(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        original(NAME if backend is None else backend, *args, **kwargs)

    return init_process_group


def _with_bfloat16_hooks(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def check(self: Any, hook: Any) -> None:
        if self.device_type == NAME and getattr(hook, "__name__", "").startswith("bf16_compress"):
            hook = _under_another_name(hook)
        original(self, hook)

    return check


def _under_another_name(hook: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the hook's signature."""

    @functools.wraps(hook)
    def renamed(*args: Any) -> Any:
        return hook(*args)

    renamed.__name__ = "renamed"
    return renamed


def _create(group: _DistributedBackendOptions, _: Backend.Options | None) -> Backend:
    from torch.distributed.distributed_c10d import GroupName

    options = _C.ChipBackendOptions()
    options._timeout = group.timeout
    options.group_name = GroupName(group.group_id)
    # PyTorch names no ranks of the default group.
    options.global_ranks_in_group = group.global_ranks_in_group or list(range(group.group_size))
    _write_records_of_exceptions()
    return _C.ChipBackend(group.store, group.group_rank, group.group_size, options, _make_gloo)


@functools.cache
def _write_records_of_exceptions() -> None:
    if options.text("flight_recorder_folder"):
        atexit.register(_write_record_of_exception)


def _write_record_of_exception() -> None:
    if getattr(sys, "last_value", None) is not None:  # what ends this process, and soon the job
        _C.write_flight_records()


def _make_gloo(store: Store, rank: int, size: int, options: Backend.Options) -> Backend:
    from torch.distributed import ProcessGroupGloo

    gloo = ProcessGroupGloo(store, rank, size, timeout=options._timeout)
    gloo.options.group_name = options.group_name
    gloo.options.global_ranks_in_group = options.global_ranks_in_group
    gloo._set_sequence_number_for_group()
    return gloo
