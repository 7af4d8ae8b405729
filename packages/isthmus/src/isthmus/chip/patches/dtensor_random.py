"""Random numbers of DTensor where the chip's generator has no offset.

PyTorch gives each shard its own part of one Philox sequence, by an offset in the generator's state. mt19937, the
default of the host chip, has none. Here every shard draws from a generator of its own, seeded by a number that all
ranks draw from their equal generators, and by the shard's place: shards differ, replicas are equal, and the
generators of all ranks stay equal. ``ISTHMUS_HOST_RNG=philox`` leaves it to PyTorch.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from isthmus.chip import random, torch_version
from isthmus_common.patches import Scope

if TYPE_CHECKING:
    from torch.distributed.tensor._dtensor_spec import DTensorSpec

MODULE = "torch.distributed.tensor._random"
RANDOM_OPERATOR = "torch._prims.rng_prims"
_PHILOX_BYTES = 16
_SEEDS = 1 << 32  # mt19937 takes 32 bits

_scope = Scope("distributed")


def install() -> None:
    """Patch DTensor's tracker of generators, as soon as it is imported."""
    if not _scope.patches:
        _scope.when_imported(MODULE, _patch, "DTensor draws shards of one tensor")


def uninstall() -> None:
    """Give DTensor its own back."""
    _scope.undo()


def _patch() -> None:
    _scope.replace(
        f"{MODULE}.OffsetBasedRNGTracker._distribute_region",
        _by_kind_of_generator,
        "shards draw from parts of a Philox sequence, which mt19937 does not have",
        expects=("self", "spec", "generator"),
    )
    if torch_version.DTENSOR_HAS_RANDOM_OPERATOR:
        _scope.when_imported(RANDOM_OPERATOR, _patch_operator, "random operators of DTensor")


def _patch_operator() -> None:
    from torch._prims.rng_prims import run_dtensor_rng_op as operator

    key = torch._C.DispatchKey.BackendSelect
    original = operator.py_kernels[key]

    def run(begin: int, end: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        state = random.get_rng_state()
        if state.numel() == _PHILOX_BYTES:
            return original(begin, end, function, *args, **kwargs)
        with _use_shard_generator(begin, state, None):  # each shard begins at another offset
            return function(*args, **kwargs)

    def set_kernel(kernel: Callable[..., Any]) -> None:
        operator.py_kernels[key] = kernel
        operator._dispatch_cache.clear()

    set_kernel(run)
    _scope.record(
        f"{RANDOM_OPERATOR}.run_dtensor_rng_op",
        "shards draw from parts of a Philox sequence, which mt19937 does not have",
        lambda: set_kernel(original),
    )


def _by_kind_of_generator(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def distribute_region(
        self: Any, spec: DTensorSpec, generator: torch.Generator | None = None
    ) -> AbstractContextManager[None]:
        state = random.get_rng_state() if generator is None else generator.get_state()
        if self._device.type != "chip" or state.numel() == _PHILOX_BYTES:
            return original(self, spec, generator)
        if not self.distribute_region_enabled:
            return contextlib.nullcontext()
        return _use_shard_generator(_place(self, spec), state, generator)

    return distribute_region


def _place(tracker: Any, spec: DTensorSpec) -> int:
    """Return the index of this rank's shard, counted over all dimensions; the same for replicas."""
    from torch.distributed.tensor import _random

    coordinate = [spec.mesh._sym_get_coordinate(dim) for dim in range(spec.mesh.ndim)]
    place: int = tracker._calc_shard_linear_idx(*_random._calc_shard_info(coordinate, spec))
    return place


@contextlib.contextmanager
def _use_shard_generator(
    place: int, state: torch.Tensor, generator: torch.Generator | None
) -> Iterator[None]:
    """Use the shard's generator inside the block; after it, generator (or the device's) is one number further."""
    common = torch.Generator()
    common.set_state(state)
    seed = int(torch.randint(_SEEDS, (), generator=common)) + place
    before = random.get_rng_state()
    random.set_rng_state(torch.Generator().manual_seed(seed % _SEEDS).get_state())
    try:
        yield
    finally:
        random.set_rng_state(common.get_state() if generator is None else before)
        if generator is not None:
            generator.set_state(common.get_state())
