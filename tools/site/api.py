"""API pages: for every public module, a table of names and their docstrings."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import NamedTuple


class Module(NamedTuple):
    """A page of the API reference."""

    name: str
    summary: str
    names: tuple[str, ...] = ()  # empty for those of __all__, or else the project's own that are not private


MODULES = (
    Module(
        "torch.chip",
        "The device: current device, streams, events, random numbers, statistics. It also has every function of "
        ":mod:`torch.chip.memory`.",
    ),
    Module("torch.chip.memory", "Allocators, statistics, history and leaks of device memory."),
    Module(
        "torch.chip.amp", "Automatic mixed precision.", ("autocast", "GradScaler", "custom_fwd", "custom_bwd")
    ),
    Module("isthmus", "Version, headers and whether the chip is registered."),
    Module("isthmus.ops", "Fused operators of large models, with gradients, on any device."),
    Module("isthmus.shim", "Run code that was written for CUDA."),
    Module("isthmus_diagnostics.debug", "Find a wrong operator in a running job."),
    Module("isthmus.memory.trace", "Traces of allocations.", ("Trace", "TraceError", "read", "write")),
    Module("isthmus.megatron", "Megatron by one import."),
    Module("isthmus.megatron.recompute", "Recompute with fewer collectives.", ("set_level", "level")),
    Module("isthmus.deepspeed", "DeepSpeed's accelerator."),
    Module(
        "isthmus.opset.library",
        "Operator libraries written in Python.",
        ("Library", "Context", "Unsupported"),
    ),
    Module(
        "isthmus.drivers",
        "Find and describe drivers.",
        ("find", "installed_entry_points", "Candidate", "DriverError"),
    ),
    Module("isthmus.doctor", "Examine an environment."),
    Module("isthmus_migrate.rules.rule", "Rules of your own.", ("Rule",)),
    Module("isthmus_migrate.rules.draft", "The edits of a rule.", ("Draft",)),
)


def pages() -> Iterator[tuple[str, str]]:
    """Yield the API pages as reStructuredText."""
    names = "\n".join(f"   {module.name}" for module in MODULES)
    yield (
        "api/index.rst",
        f"{_title('API')}From the docstrings.\n\n.. toctree::\n   :maxdepth: 1\n\n{names}\n",
    )
    for module in MODULES:
        yield f"api/{module.name}.rst", _page(module)


def _page(module: Module) -> str:
    import torch  # noqa: F401 - registers torch.chip

    kinds = {name: _kind(value) for name, value in _values(module).items()}
    deeper = [other for other in MODULES if other.name.startswith(f"{module.name}.")]
    elsewhere = {id(value) for other in deeper for value in _values(other).values()}
    known = [name for name, value in _values(module).items() if kinds[name] and id(value) not in elsewhere]
    table = "\n".join(f"   {name}" for name in known)
    entries = "\n".join(
        f".. auto{kinds[name]}:: {name}\n" + ("   :members:\n" if kinds[name] == "class" else "")
        for name in known
    )
    return (
        f"{_title(module.name)}{module.summary}\n\n.. currentmodule:: {module.name}\n\n"
        f".. autosummary::\n   :nosignatures:\n\n{table}\n\n{entries}"
    )


def _values(module: Module) -> dict[str, object]:
    """Return the public names of a module with their values."""
    loaded = importlib.import_module(module.name)
    own = (name for name, value in vars(loaded).items() if _is_own(value))
    names = module.names or vars(loaded).get("__all__", own)
    return {name: getattr(loaded, name) for name in names if not name.startswith("_")}


def _is_own(value: object) -> bool:
    return (getattr(value, "__module__", None) or "").partition(".")[0] == "isthmus"


def _title(text: str) -> str:
    return f"{text}\n{'=' * len(text)}\n\n"


def _kind(value: object) -> str | None:
    """Return the autodoc directive of a value; None for modules, constants and legacy typed tensors."""
    if inspect.isclass(value):
        old = value.__name__.endswith(("Storage", "Tensor")) or "Tensor" in type(value).__name__
        if issubclass(value, Exception):
            return "exception"
        return None if old else "class"
    return "function" if inspect.isroutine(value) else None
