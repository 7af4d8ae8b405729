"""Configuration of a job besides its calls: environment, packages, arguments, switches, random states."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from isthmus_diagnostics.accuracy import generators

if TYPE_CHECKING:
    from isthmus_diagnostics.accuracy.reading import Rank

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
# Set by each launch anew, or where it writes: no number depends on them.
_OF_A_LAUNCH = re.compile(
    r"""TORCHELASTIC_.* | .*_(RUN_ID|COMM_ID|PORT|PID|CLAIM)
    | .*_(CACHE|LOG|TRACE|DEBUG|ERROR|FAILURE|PIPE|TEMP)_(DIR|FILE|FOLDER|PATH)
    | ISTHMUS_(ANNOUNCED|QUIET|COUNTS|VERIFY|PLAN_RUN|MONITOR|DEBUG_(FOLDER|CALLS))
    | ISTHMUS_(DUMP|HEALTH|FLIGHT_RECORDER).*""",
    re.VERBOSE,
)
# Random parts of paths, as tempfile and mktemp make them.
_RANDOM_NAME = re.compile(r"\b(tmp[a-z0-9_]{8}|tmp\.\w{10})(?=/|$)")
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
        if key in _SWITCHES or (key.startswith(_VARIABLES) and not _OF_A_LAUNCH.fullmatch(key))
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
    return {name: hashlib.sha256(state).hexdigest()[:16] for name, state in generators.states().items()}


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
    """Return what two jobs have differently: what :func:`describe` records, and the tensors that they begin with.

    Files and numbers that belong to a launch are left out, and the states of generators that neither job draws from.
    What differs on rank 0 is not listed again for the other ranks.
    """
    found: dict[tuple[str, str], Setting] = {}
    if len(a) != len(b):
        found["job", "ranks"] = Setting("job", "ranks", len(a), len(b))
    for left, right in zip(a, b, strict=False) if len(a) == len(b) else [(a[0], b[0])]:
        for each in _differences(left, right):
            if (each.section, each.name) not in found:
                name = (
                    each.name if left is a[0] or each.section == "data" else f"rank {left.number} {each.name}"
                )
                found[each.section, each.name] = each._replace(name=name)
    return list(found.values())


def _differences(a: Rank, b: Rank) -> Iterator[Setting]:
    sides = [{**rank.about.get("job", {}), **_beginnings(rank)} for rank in (a, b)]
    for section in dict.fromkeys((*sides[0], *sides[1])):
        left, right = (side.get(section, {}) for side in sides)
        for name in dict.fromkeys((*left, *right)):
            values = left.get(name), right.get(name)
            if _without_random_names(values[0]) == _without_random_names(values[1]):
                continue
            # Entry of a dump by an earlier version.
            if section == "environment" and _OF_A_LAUNCH.fullmatch(name):
                continue
            if section == "random" and not any(
                rank.about.get("drawn", {}).get(name, True) for rank in (a, b)
            ):
                continue
            yield Setting(section, name, *values)


def _without_random_names(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_random_names(each) for each in value]
    return _RANDOM_NAME.sub("*", value) if isinstance(value, str) else value


def _beginnings(rank: Rank) -> dict[str, dict[str, str]]:
    """Return the first contents of named tensors, what the outermost module takes in each step, hyperparameters."""
    weights: dict[str, str] = {}
    data: dict[str, str] = {}
    hyper: dict[str, Any] = {}
    for content in rank.contents.values():
        if content.name:
            weights.setdefault(content.name, f"{content} {content.statistics and content.statistics.hash}")
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
