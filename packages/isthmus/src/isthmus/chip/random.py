"""Random numbers: one generator per device. On the host chip a seed gives the same numbers as on CPU."""

import os
from collections.abc import Iterable, Iterator

import torch

from isthmus import _C
from isthmus.chip._utils import DeviceLike, _index


class _DefaultGenerators:
    """Sequence of the default generators of all devices, created on demand."""

    def __len__(self) -> int:
        return _C.device_count()

    def __getitem__(self, device: int) -> torch.Generator:
        if not 0 <= device < len(self):
            raise IndexError(f"chip:{device} does not exist: {len(self)} devices available, from chip:0")
        return _C.default_generator(device)

    def __iter__(self) -> Iterator[torch.Generator]:
        return (self[device] for device in range(len(self)))


default_generators = _DefaultGenerators()


def _get_generator(device: torch.device) -> torch.Generator:
    return _C.default_generator(_index(device))


def get_rng_state(device: DeviceLike = "chip") -> torch.Tensor:
    """State of the device's default generator: a uint8 tensor on the CPU."""
    return _C.default_generator(_index(device)).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """State of every device, in order."""
    return [get_rng_state(device) for device in range(_C.device_count())]


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "chip") -> None:
    """Set the state of the device's default generator, as returned by :func:`get_rng_state`."""
    _C.default_generator(_index(device)).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the state of every device, in order. Raises ValueError for more states than devices."""
    states = list(new_states)
    if len(states) > _C.device_count():
        raise ValueError(
            f"set_rng_state_all: {len(states)} states for {_C.device_count()} devices; pass one per device"
        )
    for device, state in enumerate(states):
        set_rng_state(state, device)


def manual_seed(seed: int) -> None:
    """Seed the current device. Raises ValueError for a seed of more than 64 bits."""
    _get_generator(torch.device("chip")).manual_seed(_checked(seed))


def manual_seed_all(seed: int) -> None:
    """Seed every device. Raises ValueError for a seed of more than 64 bits.

    ``torch.manual_seed`` calls this, so it does not initialize the driver.
    """
    seed = _checked(seed)
    _C.seed_default_generators(seed if seed < 1 << 63 else seed - (1 << 64))


def seed() -> None:
    """Seed the current device from the operating system."""
    manual_seed(_from_system())


def seed_all() -> None:
    """Seed all devices with one number from the operating system."""
    manual_seed_all(_from_system())


def initial_seed() -> int:
    """Seed of the current device's default generator."""
    return _get_generator(torch.device("chip")).initial_seed()


def _checked(seed: int) -> int:
    seed = int(seed)
    if not -(1 << 63) <= seed < 1 << 64:
        raise ValueError(f"seed {seed} is out of range; expected -2**63 to 2**64 - 1")
    return seed


def _from_system() -> int:
    return int.from_bytes(os.urandom(8), "little") >> 1
