"""The module of a device that is the CPU: what ``torch.cuda`` answers with where the CPU stands for CUDA.

There is one device, its work is done when a call returns, it has no allocator that reports, and its random numbers
are those of the CPU's own generator. Functions whose name says it all have the signature of ``torch.cuda``'s.
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

from isthmus.shim import rules

__all__ = ["initial_seed", "seed"]

default_generators = (torch.default_generator,)
seed_all = seed
globals().update({name: getattr(torch, name) for name in rules.TENSOR_TYPES})


# ---- devices -------------------------------------------------------------------------------------------------
def device_count() -> int:
    """One device for each rank of this node, though all are the same."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def current_device() -> int:
    """0: all numbers are the same device."""
    return 0


def set_device(device: Any) -> None:
    """Nothing."""


def is_initialized() -> bool:
    """Always."""
    return True


def init() -> None:
    """Nothing."""


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Always."""
    return True


def get_device_name(device: Any = None) -> str:
    """Cpu."""
    return "cpu"


def get_device_properties(device: Any = None) -> SimpleNamespace:
    """The name, and the machine's memory in bytes."""
    return SimpleNamespace(name="cpu", total_memory=mem_get_info()[1])


@contextlib.contextmanager
def _anywhere(value: Any) -> Iterator[None]:
    yield


device = device_of = stream = _anywhere


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
    """A moment; whatever was asked for before it is done."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self._seconds = 0.0

    def record(self, stream: Any = None) -> None:
        """Take the time."""
        self._seconds = time.perf_counter()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to the other."""
        return (end_event._seconds - self._seconds) * 1000

    def query(self) -> bool:
        """Whether all is done: always."""
        return True

    def synchronize(self) -> None:
        """Nothing."""

    def wait(self, stream: Any = None) -> None:
        """Nothing."""


class Stream:
    """The one stream, which is empty whenever it is looked at."""

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self.priority = priority

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def query(self) -> bool:
        """Whether all is done: always."""
        return True

    def synchronize(self) -> None:
        """Nothing."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing."""

    def wait_event(self, event: Any) -> None:
        """Nothing."""

    def record_event(self, event: Event | None = None) -> Event:
        """The event, recorded."""
        event = event or Event()
        event.record()
        return event


_the_stream = Stream()


def current_stream(device: Any = None) -> Stream:
    """The one stream."""
    return _the_stream


default_stream = current_stream


def set_stream(stream: Any) -> None:
    """Nothing."""


def synchronize(device: Any = None) -> None:
    """Nothing."""


# ---- memory --------------------------------------------------------------------------------------------------
def empty_cache() -> None:
    """Nothing."""


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of the machine."""
    page = os.sysconf("SC_PAGE_SIZE")
    return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")


def memory_allocated(device: Any = None) -> int:
    """0: PyTorch does not count the CPU's memory."""
    return 0


memory_reserved = max_memory_allocated = max_memory_reserved = device_memory_used = memory_allocated


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Empty."""
    return {}


host_memory_stats = memory_stats


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """Empty."""
    return ""


def reset_peak_memory_stats(device: Any = None) -> None:
    """Nothing."""


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
    """The same in a list."""
    return [get_rng_state()]


def set_rng_state(new_state: torch.Tensor, device: Any = None) -> None:
    """Give the CPU's generator a state that :func:`get_rng_state` returned."""
    torch.default_generator.set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """The same for a list."""
    for state in new_states:
        set_rng_state(state)
