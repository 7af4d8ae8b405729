"""A device module for the CPU; it backs ``torch.cuda`` when the CPU replaces CUDA.

One synchronous device without memory statistics; random numbers come from the CPU's default generator. Functions have
the signatures of ``torch.cuda``.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.random import initial_seed, seed

from isthmus_common.tensor_types import TENSOR_TYPES

__all__ = ["initial_seed", "seed"]

default_generators = (torch.default_generator,)
seed_all = seed
globals().update({name: getattr(torch, name) for name in TENSOR_TYPES})


# ---- devices -------------------------------------------------------------------------------------------------
def device_count() -> int:
    """One device per rank of this node; all are the same CPU."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def current_device() -> int:
    """0: all indices are the same device."""
    return 0


def set_device(device: Any) -> None:
    """No-op."""


def is_initialized() -> bool:
    """True."""
    return True


def init() -> None:
    """No-op."""


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """True."""
    return True


def get_device_name(device: Any = None) -> str:
    """``cpu``."""
    return "cpu"


def get_device_properties(device: Any = None) -> SimpleNamespace:
    """Name, and total memory of the machine in bytes."""
    return SimpleNamespace(name="cpu", total_memory=mem_get_info()[1])


@contextlib.contextmanager
def _any_device(value: Any) -> Iterator[None]:
    yield


device = device_of = stream = _any_device


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    return 0


def _lazy_init() -> None:
    pass


def _lazy_call(callable: Callable[[], Any], **kwargs: Any) -> None:
    callable()


def _is_in_bad_fork() -> bool:
    return False


_utils = SimpleNamespace(_get_device_index=_get_device_index)


# ---- streams and events --------------------------------------------------------------------------------------
class Event:
    """An event that is complete as soon as it is recorded."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self._seconds = 0.0

    def record(self, stream: Any = None) -> None:
        """Record the current time."""
        self._seconds = time.perf_counter()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to the other."""
        return (end_event._seconds - self._seconds) * 1000

    def query(self) -> bool:
        """True: work is complete when a call returns."""
        return True

    def synchronize(self) -> None:
        """No-op."""

    def wait(self, stream: Any = None) -> None:
        """No-op."""


class Stream:
    """The only stream; always idle."""

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self.priority = priority

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def query(self) -> bool:
        """True: work is complete when a call returns."""
        return True

    def synchronize(self) -> None:
        """No-op."""

    def wait_stream(self, stream: Any) -> None:
        """No-op."""

    def wait_event(self, event: Any) -> None:
        """No-op."""

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event and return it."""
        event = event or Event()
        event.record()
        return event


_the_stream = Stream()


def current_stream(device: Any = None) -> Stream:
    """The only stream."""
    return _the_stream


default_stream = current_stream


def set_stream(stream: Any) -> None:
    """No-op."""


def synchronize(device: Any = None) -> None:
    """No-op."""


# ---- memory --------------------------------------------------------------------------------------------------
def empty_cache() -> None:
    """No-op."""


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of the machine."""
    page = os.sysconf("SC_PAGE_SIZE")
    return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")


def memory_allocated(device: Any = None) -> int:
    """0: PyTorch does not count the CPU's memory."""
    return 0


memory_reserved = max_memory_allocated = max_memory_reserved = device_memory_used = memory_allocated


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Empty: PyTorch does not count CPU memory."""
    return {}


host_memory_stats = memory_stats


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """Empty: PyTorch does not count CPU memory."""
    return ""


def reset_peak_memory_stats(device: Any = None) -> None:
    """No-op."""


reset_accumulated_memory_stats = reset_peak_memory_stats


# ---- random numbers ------------------------------------------------------------------------------------------
def manual_seed(seed: int) -> None:
    """Seed the CPU's generator."""
    torch.default_generator.manual_seed(int(seed))


manual_seed_all = manual_seed


def get_rng_state(device: Any = None) -> torch.Tensor:
    """State of the CPU's generator."""
    return torch.default_generator.get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """List with the state of the CPU's generator."""
    return [get_rng_state()]


def set_rng_state(new_state: torch.Tensor, device: Any = None) -> None:
    """Restore a state returned by :func:`get_rng_state`."""
    torch.default_generator.set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Restore each state of a list."""
    for state in new_states:
        set_rng_state(state)
