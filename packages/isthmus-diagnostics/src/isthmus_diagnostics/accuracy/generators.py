"""States of the random generators of a process, and whether its program draws from them."""

import random
from typing import Any

import numpy as np
import torch

from isthmus_common import console  # noqa: F401  # before the first look: a later import of rich would be a draw


def states(accelerator: bool = True) -> dict[str, bytes]:
    """Return the states of the generators of Python, NumPy and PyTorch.

    Args:
        accelerator: also that of the current accelerator, which it initializes.
    """
    found = {
        "python": repr(random.getstate()).encode(),
        "numpy": repr(
            [part.tolist() if isinstance(part, np.ndarray) else part for part in _numpy()]
        ).encode(),
        "torch": torch.get_rng_state().numpy().tobytes(),
    }
    if accelerator and (module := _accelerator()) is not None:
        found["accelerator"] = module.get_rng_state().cpu().numpy().tobytes()
    return found


class Draws:
    """Detects which random generators a program draws from, by comparing their states.

    Attributes:
        drawn: whether numbers were drawn, by generator.
    """

    def __init__(self) -> None:
        self._seen = states(accelerator=False)
        self.drawn: dict[str, bool] = {}

    def update(self) -> bool:
        """Look again; return whether anything has changed in `drawn`."""
        before = dict(self.drawn)
        for name, state in states().items():
            # A seed without draws matters to nothing; without one, each process starts with another.
            is_used = state != self._seen.get(name) and not _is_fresh(name, state)
            self.drawn[name] = is_used or before.get(name, False)
            self._seen[name] = state
        return self.drawn != before


def _is_fresh(name: str, state: bytes) -> bool:
    """Return whether nothing was drawn from a generator since it got its seed."""
    if name == "python":
        _, words, gauss = random.getstate()
        return words[-1] == len(words) - 1 and gauss is None
    if name == "numpy":
        kind, words, position, has_gauss, _ = _numpy()
        return bool(kind == "MT19937" and position == len(words) and not has_gauss)
    module = _accelerator() if name == "accelerator" else torch
    if not hasattr(module, "initial_seed"):
        return False
    device = torch.accelerator.current_accelerator() if name == "accelerator" else "cpu"
    generator = torch.Generator(device=device).manual_seed(module.initial_seed())
    return generator.get_state().cpu().numpy().tobytes() == state


def _numpy() -> tuple[Any, ...]:
    found = np.random.get_state(legacy=True)
    assert isinstance(found, tuple)
    return found


def _accelerator() -> Any:
    """Return the module of the current accelerator, or None if there is none with a generator."""
    device = torch.accelerator.current_accelerator(check_available=True)
    module = None if device is None else torch.get_device_module(device)
    return module if hasattr(module, "get_rng_state") else None
