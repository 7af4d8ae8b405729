"""What a job depends on besides its calls: environment, packages, arguments, switches, random states."""

from __future__ import annotations

import hashlib
import os
import platform
import random
import sys
from importlib.metadata import distributions
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from isthmus.accuracy.reading import Rank

_VARIABLES = (
    "ISTHMUS_",
    "TORCH",
    "PYTORCH_",
    "CUDA_",
    "ASCEND_",
    "HCCL_",
    "NCCL_",
    "OMP_",
    "MKL_",
    "NVIDIA_",
    "TF_",
)
_SWITCHES = ("CUBLAS_WORKSPACE_CONFIG", "LCCL_DETERMINISTIC", "PYTHONHASHSEED", "WORLD_SIZE")


def describe() -> dict[str, Any]:
    """Return what this process depends on, by section; values are JSON."""
    return {
        "system": _system(),
        "packages": {each.name: each.version for each in distributions() if each.name},
        "environment": _environment(),
        "arguments": {"program": sys.argv[0] if sys.argv else "", "arguments": sys.argv[1:]},
        "switches": _determinism(),
        "random": _random_states(),
    }


def _system() -> dict[str, Any]:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "accelerator": str(accelerator) if accelerator else "cpu",
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def _environment() -> dict[str, str]:
    return {
        key: value
        for key, value in sorted(os.environ.items())
        if key in _SWITCHES or (key.startswith(_VARIABLES) and not key.startswith("ISTHMUS_DUMP"))
    }


def _determinism() -> dict[str, Any]:
    return {
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn.deterministic": torch.backends.cudnn.deterministic,
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "default_dtype": str(torch.get_default_dtype())[6:],
        "autocast": torch.is_autocast_enabled("cpu"),
    }


def _random_states() -> dict[str, str]:
    states = {
        "python": repr(random.getstate()).encode(),
        "numpy": repr(np.random.get_state()).encode(),
        "torch": torch.get_rng_state().numpy().tobytes(),
    }
    if (accelerator := torch.accelerator.current_accelerator(check_available=True)) is not None:
        module = torch.get_device_module(accelerator)
        if hasattr(module, "get_rng_state"):
            states["accelerator"] = module.get_rng_state().cpu().numpy().tobytes()
    return {name: hashlib.sha256(state).hexdigest()[:16] for name, state in states.items()}


class Setting(NamedTuple):
    """Something that two jobs have differently.

    Attributes:
        section: such as ``packages``.
        name: in the section.
        a, b: values; None where one side has none.
    """

    section: str
    name: str
    a: Any
    b: Any


def differences(a: list[Rank], b: list[Rank]) -> list[Setting]:
    """Return what two jobs have differently: what :func:`describe` records, and the tensors that they begin with."""
    found = []
    sides = [{**side[0].about.get("job", {}), **_beginnings(side)} for side in (a, b)]
    if len(a) != len(b):
        found.append(Setting("job", "ranks", len(a), len(b)))
    for section in dict.fromkeys((*sides[0], *sides[1])):
        left, right = (side.get(section, {}) for side in sides)
        for name in dict.fromkeys((*left, *right)):
            if left.get(name) != right.get(name):
                found.append(Setting(section, name, left.get(name), right.get(name)))
    return found


def _beginnings(ranks: list[Rank]) -> dict[str, dict[str, str]]:
    """Return the first contents of named tensors, what the outermost module takes in each step, hyperparameters."""
    weights: dict[str, str] = {}
    data: dict[str, str] = {}
    hyper: dict[str, Any] = {}
    for rank in ranks:
        for content in rank.contents.values():
            if content.name:
                weights.setdefault(
                    content.name, f"{content} {content.statistics and content.statistics.hash}"
                )
        for call in rank.calls:
            place = call.place
            if call.operator == "module" and "." not in place.module and place.phase == "forward":
                for name, content in call.inputs.items():
                    data[f"rank {rank.number} step {place.step} {place.module}[{place.visit}] {name}"] = str(
                        content
                    )
            elif call.operator.startswith("optimizer::"):
                hyper |= {f"{call.operator[11:]}.{name}": value for name, value in call.arguments.items()}
    return {"weights": weights, "data": data, "hyperparameters": hyper}
