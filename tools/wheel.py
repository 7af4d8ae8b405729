"""Build the wheels of all packages into dist/ for each named Python, and check them in a fresh environment.

``python -m tools.wheel python3.11 python3.12``

The check installs the wheels with PyTorch, computes on the chip, and runs `isthmus doctor`, a script under
`isthmus run` and the conformance cases of one operator. pip must be able to install PyTorch for each Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TORCH = "torch==2.13.0"
BUILD = ("setuptools", "wheel", "ninja", "apache-tvm-ffi", TORCH)
ADD = "import torch; a = torch.ones(3, device='chip'); assert (a + a).cpu().tolist() == [2.0] * 3"
SCRIPT = """\
import torch
x = torch.ones(2, 2, device="cuda", requires_grad=True)
(x @ x).sum().backward()
print(x.grad.sum())
"""


def call(*words: str | Path, folder: Path = ROOT) -> None:
    """Run a command outside the checkout's environment; raise CalledProcessError if it fails."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    path = f"{Path(words[0]).parent}:{kept['PATH']}" if Path(words[0]).is_absolute() else kept["PATH"]
    subprocess.run([str(word) for word in words], check=True, cwd=folder, env={**kept, "PATH": path})


def environment(python: str, folder: Path, *packages: str | Path) -> Path:
    """Create a virtual environment with packages; return its bin folder."""
    call(python, "-m", "venv", folder)
    pip = (folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    call(*pip, "--constraint", ROOT / "constraints.txt", *packages)
    return folder / "bin"


def build(python: str, folder: Path) -> list[Path]:
    """Build the wheels in an environment of its own; return their paths."""
    programs = environment(python, folder / "build", *BUILD)
    for stale in (ROOT / "build").glob("lib*"):  # an earlier build left modules here that have moved since
        shutil.rmtree(stale)
    made = folder / "wheel"
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", made)
    call(programs / "python", "-m", "pip", "wheel", *options, ROOT, *sorted((ROOT / "packages").iterdir()))
    (ROOT / "dist").mkdir(exist_ok=True)
    return [Path(shutil.move(wheel, ROOT / "dist" / wheel.name)) for wheel in sorted(made.glob("*.whl"))]


def check(python: str, wheels: list[Path], folder: Path) -> None:
    """Install the wheels in a fresh environment and test them."""
    programs = environment(python, folder / "check", TORCH, *wheels)
    script = folder / "script.py"
    script.write_text(SCRIPT)
    call(programs / "python", "-c", ADD, folder=folder)
    call(programs / "isthmus", "doctor", folder=folder)
    call(programs / "isthmus", "run", script, folder=folder)
    conform = ("conform", "run", "--driver", "host", "--operators", "aten::add.Tensor")
    call(programs / "isthmus", *conform, "--output", folder / "report", folder=folder)


def main(pythons: list[str]) -> None:
    """Build and check the wheels for each Python."""
    for python in pythons:
        with tempfile.TemporaryDirectory() as name:
            wheels = build(python, Path(name))
            check(python, wheels, Path(name))
        print(f"make: {', '.join(wheel.name for wheel in wheels)} in dist/ passed their check")


if __name__ == "__main__":
    main(sys.argv[1:])
