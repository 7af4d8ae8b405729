"""Writes docs/results/torch-chip.md: ``python -m tools.pages.torch_chip [--check]``.

Every public name of ``torch.cuda`` and its submodules and of ``torch.accelerator``: there, without a meaning on the
chip, or missing. ``--check`` writes nothing and fails if the page is stale.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import NamedTuple

from isthmus._support.files import write_file
from isthmus.chip import absent

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "torch-chip.md"

SUBMODULES = (
    "amp comm gds graphs green_contexts jiterator memory nccl nvtx profiler random sparse streams tunable"
).split()
# Public, though no __all__ lists them.
UNLISTED = {
    "torch.cuda": ("AcceleratorError", "OutOfMemoryError", "comm", "gds", "green_contexts"),
    "torch.cuda.jiterator": (),
    "torch.cuda.nccl": ("init_rank", "is_available", "unique_id", "version"),
    "torch.cuda.sparse": (),
    "torch.cuda.streams": ("Event", "ExternalStream", "Stream"),
}

_HEAD = """\
# torch.chip against torch.cuda

Made by `python -m tools.pages.torch_chip`; do not edit.

`torch.chip` has the names of `torch.cuda` that apply to any chip, with the same arguments and units. Other names are
absent, so that `hasattr` is accurate; reading one raises an error with the reason:

```text
AttributeError: module 'torch.chip' has no attribute 'CUDAGraph': {graphs}
```

Under [`isthmus run`](../guides/run-a-cuda-script.md) scripts use `torch.cuda`, with
[these answers](../reference/cuda-answers.md). `torch.accelerator` is the chip.

- *Autocast* treats each operator as CUDA's does, in float16, bfloat16 or float32.
- *Random numbers* on the host chip are the CPU's mt19937: after the same seed, each operator returns the CPU's
  numbers. With `ISTHMUS_HOST_RNG=philox` they are Philox4x32-10's and depend on seed and offset only, not on threads
  or strides. A generator's state is 16 bytes (seed, offset). The offset counts 32-bit words, is a multiple of 4, and
  advances by what each operator uses. Operators without a Philox kernel (`multinomial`, `poisson` ...) draw from a
  generator seeded by the next 4 words.
- *Waits*: `torch.chip.set_sync_debug_mode("warn")` reports each operator that makes the host wait for the chip.
- *Telemetry* (`utilization`, `temperature` ...) comes from the driver; what it does not measure raises
  NotImplementedError.

| module | names | present | meaningless on the chip | missing |
|---|---|---|---|---|
"""


class Name(NamedTuple):
    """One public name.

    Attributes:
        name: in its module.
        present: whether the chip has it.
        reason: why it has no meaning; "" where it is present or missing.
    """

    name: str
    present: bool
    reason: str

    @property
    def missing(self) -> bool:
        """Whether it should be there and is not."""
        return not self.present and not self.reason


def names() -> dict[str, list[Name]]:
    """Module -> its public names, in alphabetical order."""
    table = {"torch.cuda": [_of_cuda("", name) for name in _public("torch.cuda")]}
    for module in SUBMODULES:
        full = f"torch.cuda.{module}"
        table[full] = [_of_cuda(module, name) for name in _public(full)]
    for full in ("torch.accelerator", "torch.accelerator.memory"):
        reasons = absent.ACCELERATOR
        table[full] = [Name(name, name not in reasons, reasons.get(name, "")) for name in _public(full)]
    return table


def _public(module: str) -> list[str]:
    found = importlib.import_module(module)
    own = [
        name
        for name, value in vars(found).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and getattr(value, "__module__", "") == module
    ]
    listed = getattr(found, "__all__", UNLISTED.get(module) or own)
    return sorted({*listed, *UNLISTED.get(module, ())})


def _of_cuda(module: str, name: str) -> Name:
    import torch

    holder = getattr(torch, "chip")  # noqa: B009 (PyTorch's types do not know it)
    if module:
        holder = getattr(holder, module, None)
    if holder is not None and hasattr(holder, name):
        return Name(name, True, "")
    inside = absent.reason(f"{module}.{name}") if module else ""
    return Name(name, False, inside or absent.reason(name))


def page() -> str:
    """What docs/results/torch-chip.md should contain."""
    table = names()
    text = [_HEAD.format(graphs=absent.reason("CUDAGraph"))]
    for module, rows in table.items():
        present = sum(row.present for row in rows)
        missing = sum(row.missing for row in rows)
        text.append(
            f"| `{module}` | {len(rows)} | {present} | {len(rows) - present - missing} | {missing} |\n"
        )
    for module, rows in table.items():
        text.append(f"\n## {module}\n\n")
        text.extend(_section(rows))
    return "".join(text)


def _section(rows: list[Name]) -> list[str]:
    present = [f"`{row.name}`" for row in rows if row.present]
    lines = [f"Present: {_wrapped(', '.join(present))}.\n"] if present else []
    others = [row for row in rows if not row.present]
    if others:
        lines += ["\n"] if lines else []
        lines += ["| name | | |\n", "|---|---|---|\n"]
        lines += [
            f"| `{row.name}` | {'missing' if row.missing else 'meaningless'} | {row.reason} |\n"
            for row in others
        ]
    return lines


def _wrapped(text: str) -> str:
    import textwrap

    return "\n".join(textwrap.wrap("Present: " + text, 118))[len("Present: ") :]


def main(arguments: list[str]) -> int:
    """Command line; returns the exit status."""
    text = page()
    stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text
    if stale and "--check" in arguments:
        print(f"{PAGE.name} is stale; do `python -m tools.pages.torch_chip`", file=sys.stderr)
        return 1
    if stale:
        write_file(PAGE, text.encode())
        print(f"written: docs/{PAGE.name}")
    for module, rows in names().items():
        missing = [row.name for row in rows if row.missing]
        if missing:
            print(f"{module}: missing {', '.join(missing)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
