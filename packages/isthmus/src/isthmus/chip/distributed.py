"""The c10d backend ``chip``: ``torch.distributed`` on chip tensors.

Collectives use the driver's communicators, if it has them, on separate streams. Otherwise, and with
``ISTHMUS_COLLECTIVES=gloo``, they use gloo: on the chip's memory if the host can address it, else on copies. dtypes
unknown to gloo are moved as bytes; reducing them raises an error. The backend accepts CPU tensors too. Sums of bool
are "or" and products "and", as in NCCL; integers have no average.
"""

from __future__ import annotations

import atexit
import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from isthmus import _C, options
from isthmus.chip import torch_version
from isthmus.chip.patches import context_parallel, dtensor_attention, dtensor_random, rpc
from isthmus.rendezvous import restarts
from isthmus_common.patches import Scope, attempt

if TYPE_CHECKING:
    from datetime import timedelta

    from torch._C._distributed_c10d import Backend, ProcessGroup, Store, _DistributedBackendOptions

NAME = "chip"

_scope = Scope("distributed")


def install() -> None:
    """Register the backend ``chip`` in ``torch.distributed``, and make it the default backend.

    ``import torch`` has imported ``torch.distributed``, so this adds no import.
    """
    from torch.distributed import Backend as Names

    Names.register_backend(NAME, _create, extended_api=True, devices=["chip", "cpu"])
    if not _scope.patches:
        for module in ("torch.distributed", "torch.distributed.distributed_c10d"):
            _scope.replace(
                f"{module}.init_process_group",
                _with_default_backend,
                "by default PyTorch uses the accelerator's backend but names it gloo, so DDP does not find it",
                expects=("backend",),
            )
        if torch_version.GROUP_LACKS_DEFAULT_BACKEND:
            _scope.replace(
                "torch.distributed.distributed_c10d._new_process_group_helper",
                _with_default_of_several,
                "a group of several backends has no default one, and warns of it, if one is a plugin's",
                expects=("group_size", "group_rank", "global_ranks_in_group", "backend"),
            )
        if torch_version.TIMEOUT_REACHES_LISTED_BACKENDS:
            _scope.replace(
                "torch.distributed.distributed_c10d._set_pg_timeout",
                _of_this_backend,
                "it sets the timeout of gloo and NCCL alone",
                expects=("timeout", "group"),
            )
        _scope.replace(
            "torch.nn.parallel.DistributedDataParallel._check_comm_hook",
            _with_bfloat16_hooks,
            "without CUDA it refuses the bfloat16 compression hooks, by name",
            expects=("self", "hook"),
        )
    for install, loss in (
        (dtensor_attention.install, "attention of DTensors on the chip"),
        (dtensor_random.install, "random DTensors on the chip"),
        (context_parallel.install, "context parallelism on the chip"),
        (rpc.install, "torch.distributed.rpc with the chip's tensors"),
        (restarts.install, "restarts of torchrun's workers"),
    ):
        attempt(install, loss)


def dump_flight_recorder(include_collectives: bool = True, only_active: bool = False) -> bytes:
    """The last operations submitted to the driver, for PyTorch's flight-recorder tools.

    Write it to ``<folder>/rank_<n>`` on each rank; ``python -m torch.distributed.flight_recorder.fr_trace <folder>``
    then finds the first mismatch. ``ISTHMUS_FLIGHT_RECORDER`` sets the number of operations kept.

    Args:
        include_collectives: include the operations; False returns only the groups and their progress.
        only_active: exclude completed operations.

    Returns:
        A pickle of plain values.
    """
    return _C.dump_flight_recorder(include_collectives, only_active)


def uninstall() -> None:
    """Restore PyTorch's default backend."""
    _scope.undo()


def _with_default_backend(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        original(NAME if backend is None else backend, *args, **kwargs)

    return init_process_group


def _with_default_of_several(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def make_group(size: int, rank: int, ranks: list[int], backend: str, *args: Any, **kwargs: Any) -> Any:
        group, store = original(size, rank, ranks, backend, *args, **kwargs)
        several = str(backend).split(",")
        if ":" in several[0] and any(each.partition(":")[2] == NAME for each in several):
            group._set_default_backend(group.BackendType.CUSTOM)
        return group, store

    return make_group


def _of_this_backend(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def set_timeout(timeout: timedelta, group: ProcessGroup | None = None) -> None:
        from torch.distributed import distributed_c10d as c10d

        chosen = c10d._get_default_group() if group is None else group
        devices = () if c10d._rank_not_in_group(chosen) else chosen._device_types
        backends = [chosen._get_backend(device) for device in devices]
        ours = [backend for backend in backends if isinstance(backend, _C.ChipBackend)]
        for backend in ours:
            backend.set_timeout(timeout)
        if len(ours) < len(backends) or not backends:
            original(timeout, group)

    return set_timeout


def _with_bfloat16_hooks(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def check(self: Any, hook: Any) -> None:
        if self.device_type == NAME and getattr(hook, "__name__", "").startswith("bf16_compress"):
            hook = _under_another_name(hook)
        original(self, hook)

    return check


def _under_another_name(hook: Callable[..., Any]) -> Callable[..., Any]:
    """The hook as a function of another name."""

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
    # PyTorch lists no ranks for the default group.
    options.global_ranks_in_group = group.global_ranks_in_group or list(range(group.group_size))
    _write_records_of_exceptions()
    return _C.ChipBackend(group.store, group.group_rank, group.group_size, options, _make_gloo)


@functools.cache
def _write_records_of_exceptions() -> None:
    if options.text("flight_recorder_folder"):
        atexit.register(_write_record_of_exception)


def _write_record_of_exception() -> None:
    if getattr(sys, "last_value", None) is not None:  # an uncaught exception ends this process
        _C.write_flight_records()


def _make_gloo(store: Store, rank: int, size: int, options: Backend.Options) -> Backend:
    from torch.distributed import ProcessGroupGloo

    gloo = ProcessGroupGloo(store, rank, size, timeout=options._timeout)
    gloo.options.group_name = options.group_name
    gloo.options.global_ranks_in_group = options.global_ranks_in_group
    if torch_version.SEQUENCE_NUMBER_IS_SET:
        gloo._set_sequence_number_for_group()
    return gloo
