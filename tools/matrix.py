"""Try Isthmus on each supported PyTorch, each in an environment of its own: ``make matrix CELLS="2.13.0 2.15.0"``.

A cell is a version of PyTorch, with a Python after ``@``; `make setup` makes its environment. Each runs the tests
of core, memory, dispatch, shim and chip; a training of LLaMA, whose losses are compared with those of the same
PyTorch's CPU; one in ten of PyTorch's operators and dtypes; the conformance suite's tier llama on the host and
numpy chips. The output of each step is in runs/matrix/, the table in docs/results/matrix.md.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from isthmus_common.files import write_file
from tools.repository import CORE, ROOT

CELLS = ("2.13.0", "2.14.1", "2.15.0")
PAGE = ROOT / "docs" / "results" / "matrix.md"
TESTS = [str(CORE / "tests" / name) for name in ("core", "memory", "dispatch", "shim", "chip")]
TRAINING = ("examples/pretrain_llama.py", "--tiny", "--overwrite")
CONFORM = re.compile(r"^(?:passed|FAILED|NOT RUN): driver \w+, (?P<counts>.*)$", re.MULTILINE)
HEADINGS = "PyTorch,Python,tests,training,operators,conform host,conform numpy,patches,time".split(",")
HEAD = """\
# Versions of PyTorch

Made by `make matrix`: one smoke set in an environment for each PyTorch and Python. *Tests* are those of core, memory,
dispatch, shim and chip; *training* compares the losses of `examples/pretrain_llama.py --tiny` on the host chip with
those of the same PyTorch's CPU, bit for bit; *operators* are one in ten of PyTorch's pairs of operator and dtype,
forward and backward, bit for bit; *conform* is the tier llama; *patches* are the changes of PyTorch's Python: by the
chip, and by `isthmus run`.

"""
PATCHES = """\
import torch, torch._dynamo, torch._inductor.compile_fx, torch.export, torch.distributed.rpc
import torch.distributed.tensor.experimental._attention, torch.nn.attention.flex_attention
from isthmus import shim
from isthmus_common import patches
alone = len(patches.active())
with shim.enter():
    print(alone, len(patches.active()) - alone, len(patches.skipped()))
"""


class Cell(NamedTuple):
    """One environment.

    Attributes:
        torch: version of PyTorch.
        python: its Python, as a name or a path; "" for the default one.
    """

    torch: str
    python: str

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Return the cell of "2.15.0" or "2.15.0@python3.13"."""
        torch, _, python = text.partition("@")
        return cls(torch, python)

    @property
    def suffix(self) -> str:
        """End of the names of its environment and stamps; "" for the default environment."""
        suffix = f"-{self.torch}" if self.torch != CELLS[0] else ""
        return f"{suffix}-{Path(self.python).name}" if self.python else suffix

    @property
    def folder(self) -> Path:
        """Where its outputs are."""
        name = f"{self.torch}-{Path(self.python).name}" if self.python else self.torch
        return ROOT / "runs" / "matrix" / name


class Failed(Exception):
    """A step could not be run; the message names its log."""


def call(cell: Cell, step: str, *words: str, check: bool = False, **environment: str) -> str:
    """Run a program of the cell's environment; return its output, which the log has, too.

    Raises:
        Failed: check is set and the program ended with an error.
    """
    print(f"matrix: {cell.folder.name}: {step}", flush=True)
    programs = ROOT / f".venv{cell.suffix}" / "bin"
    variables = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", **environment}
    log = cell.folder / f"{step.replace(' ', '-')}.log"
    log.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    with log.open("w") as output:
        ended = subprocess.run(
            words, cwd=ROOT, env=variables, stdout=output, stderr=subprocess.STDOUT, check=False
        )
    if check and ended.returncode:
        raise Failed(f"matrix: {' '.join(words[:3])} failed on {cell.folder.name}; see {log}")
    return log.read_text(errors="replace")


def run_tests(cell: Cell) -> str:
    """Return the counts of the smoke tests: "1,135 passed, 2 failed"."""
    text = call(
        cell, "tests", "python", "-m", "pytest", "--numprocesses", "auto", "--dist", "loadfile", *TESTS
    )
    found = re.findall(r"(\d+) (passed|failed|errors?)\b", text.splitlines()[-1] if text else "")
    return ", ".join(f"{int(count):,} {name}" for count, name in found) or "no result"


def losses(folder: Path) -> list[str]:
    """Return the losses of a training, exactly."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [found["hex"] for line in lines if "hex" in (found := json.loads(line))]


def train(cell: Cell) -> str:
    """Return whether the losses on the chip are those of the CPU."""
    found = []
    for device in ("chip", "cpu"):
        folder = cell.folder / device
        words = ("isthmus", "run", *(("--device", "cpu") if device == "cpu" else ()), *TRAINING)
        call(cell, f"training {device}", *words, "--output", str(folder), check=True)
        found.append(losses(folder))
    on_chip, on_cpu = found
    equal = sum(a == b for a, b in zip(on_chip, on_cpu, strict=True))
    return f"{equal} of {len(on_cpu)} losses equal"


def judge_operators(cell: Cell) -> str:
    """Return the counts of one in ten of PyTorch's operator samples."""
    text = call(cell, "opinfo", "python", "-m", "tools.opinfo", "--every", "10")
    found = re.search(r"^opinfo: (\d+) judged in \d+ s, (\d+) failed", text, flags=re.MULTILINE)
    return f"{int(found[1]):,} judged, {found[2]} failed" if found else "no result"


def conform(cell: Cell, driver: str) -> str:
    """Return the counts of the tier llama on a driver."""
    folder = str(cell.folder / f"conform-{driver}")
    words = ("conform", "run", "--driver", driver, "--tier", "llama", "--output", folder)
    found = CONFORM.search(call(cell, f"conform {driver}", "isthmus", *words, ISTHMUS_HOST_DEVICES="2"))
    return found["counts"] if found else "no result"


def count_patches(cell: Cell) -> str:
    """Return the numbers of patches of PyTorch: of the chip, of the shim, and those left out."""
    chip, shim, skipped = call(cell, "patches", "python", "-c", PATCHES, check=True).split()[-3:]
    return f"{chip} + {shim}" + (f", {skipped} left out" if skipped != "0" else "")


def try_cell(cell: Cell) -> list[str]:
    """Return the row of a cell."""
    begun = time.monotonic()
    words = ["make", "setup", f"TORCH={cell.torch}", f"BESIDE={cell.suffix}"]
    call(cell, "setup", *words, *([f"PYTHON={cell.python}"] if cell.python else []), check=True)
    python = call(
        cell, "version", "python", "-c", "import platform; print(platform.python_version())"
    ).strip()
    row = [cell.torch, python, run_tests(cell), train(cell), judge_operators(cell)]
    row += [conform(cell, driver) for driver in ("host", "numpy")]
    return [*row, count_patches(cell), f"{(time.monotonic() - begun) / 60:.0f} min"]


def page(rows: list[list[str]]) -> str:
    """Return the text of the page."""
    lines = "\n".join(f"| {' | '.join(cells)} |" for cells in (HEADINGS, ["---"] * len(HEADINGS), *rows))
    return HEAD + lines + "\n"


def main(words: list[str]) -> int:
    """Try the cells, print each row, and write the page if all of them were asked for."""
    rows = []
    for text in words or CELLS:
        try:
            rows.append(try_cell(Cell.parse(text)))
        except Failed as error:
            print(error, file=sys.stderr)
            return 1
        print("matrix:", " | ".join(rows[-1]), flush=True)
    write_file(PAGE, page(rows).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
