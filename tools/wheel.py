"""Build the wheels of all packages into dist/ for each named Python, and check them in fresh environments.

``python -m tools.wheel python3.11 python3.12``

The wheels are built from a copy of the files that git tracks. The check installs each package without compiled code
alone and without PyTorch, and asks its commands for their help. Then it installs all wheels with PyTorch, computes on
the chip, and runs `isthmus doctor`, a script under `isthmus run` and the conformance cases of one operator. pip must
be able to install PyTorch for each Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from zipfile import ZipFile

from tools.repository import ROOT

TORCH = "torch==2.13.0"
BUILD = ("setuptools", "wheel", "ninja", "apache-tvm-ffi", "ml-dtypes", TORCH)
DIST = ROOT / "dist"
ADD = "import torch; a = torch.ones(3, device='chip'); assert (a + a).cpu().tolist() == [2.0] * 3"
# Prints the names of the commands that a package registers; fails where PyTorch is installed.
COMMANDS = """\
import sys
from importlib.metadata import distribution
from importlib.util import find_spec
assert find_spec("torch") is None
points = distribution(sys.argv[1]).entry_points.select(group="isthmus.commands")
print(*(point.name for point in points))
"""
SCRIPT = """\
import torch
x = torch.ones(2, 2, device="cuda", requires_grad=True)
(x @ x).sum().backward()
print(x.grad.sum())
"""


def call(*words: str | Path, folder: Path = ROOT, output: int | None = None) -> str:
    """Run a command outside the checkout's environment; raise CalledProcessError if it fails."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    path = f"{Path(words[0]).parent}:{kept['PATH']}" if Path(words[0]).is_absolute() else kept["PATH"]
    result = subprocess.run(
        [str(word) for word in words],
        check=True,
        cwd=folder,
        env={**kept, "PATH": path},
        stdout=output,
        text=True,
    )
    return result.stdout or ""


def environment(python: str, folder: Path, *packages: str | Path) -> Path:
    """Create a virtual environment with packages; return its bin folder."""
    call(python, "-m", "venv", folder)
    pip = (folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    call(*pip, "--constraint", ROOT / "constraints.txt", *packages)
    return folder / "bin"


def copy_tracked(folder: Path) -> Path:
    """Copy the files of the packages that git tracks into the folder, without older ones; return it."""
    shutil.rmtree(folder / "packages", ignore_errors=True)
    names = call("git", "ls-files", "-z", "packages", "VERSION", "LICENSE", output=subprocess.PIPE)
    for name in filter(None, names.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def build(python: str, folder: Path) -> list[Path]:
    """Build the wheels within the folder; return their paths in dist/."""
    source = copy_tracked(folder / "source")
    # Where a checkout has its environment: so ccache finds what `make` compiled.
    programs = environment(python, source / ".venv", *BUILD)
    packages = sorted((source / "packages").iterdir())
    made = folder / "wheels"
    shutil.rmtree(made, ignore_errors=True)
    options = ("--quiet", "--no-deps", "--no-build-isolation")
    pip = (programs / "python", "-m", "pip", "--disable-pip-version-check")
    first = [source / "packages" / name for name in ("isthmus-common", "isthmus")]
    call(*pip, "wheel", *options, "--wheel-dir", made, *first)
    # isthmus-ascend is built with the headers of isthmus.
    call(*pip, "install", *options, "--force-reinstall", *made.glob("*.whl"))
    call(*pip, "wheel", *options, "--wheel-dir", made, *(each for each in packages if each not in first))
    DIST.mkdir(exist_ok=True)
    return [Path(shutil.copy2(wheel, DIST / wheel.name)) for wheel in sorted(made.glob("*.whl"))]


def check_license(wheel: Path) -> None:
    """Raise ValueError if a wheel has no license."""
    with ZipFile(wheel) as archive:
        if not any(name.endswith(".dist-info/licenses/LICENSE") for name in archive.namelist()):
            raise ValueError(f"{wheel.name} has no LICENSE; add a link packages/<name>/LICENSE to the root's")


def check_alone(python: str, wheel: Path, own: Path, folder: Path) -> str:
    """Install one package with its requirements, without PyTorch; return its commands, all of which answered.

    ``own`` is a file of constraints that names the wheel of each package, so that pip looks for none in an index.
    """
    programs = environment(python, folder, "--constraint", own, wheel)
    package = wheel.name.partition("-")[0]
    names = call(programs / "python", "-c", COMMANDS, package, folder=folder, output=subprocess.PIPE).split()
    for name in names:
        call(programs / "isthmus", name, "--help", folder=folder, output=subprocess.DEVNULL)
    call(programs / "python", "-c", f"import {package}", folder=folder)
    return " ".join(names)


def check(python: str, wheels: list[Path], folder: Path) -> None:
    """Install the wheels in fresh environments and test them."""
    own = folder / "own.txt"
    own.write_text("".join(f"{wheel.name.partition('-')[0]} @ {wheel.as_uri()}\n" for wheel in wheels))
    for wheel in wheels:
        check_license(wheel)
        size = f"{wheel.stat().st_size / 1e6:7.2f} MB"
        if wheel.name.endswith("-none-any.whl"):
            begun = time.monotonic()
            commands = check_alone(python, wheel, own, folder / wheel.stem)
            print(f"{size} {wheel.name}: alone in {time.monotonic() - begun:.0f} s; {commands}", flush=True)
        else:
            print(f"{size} {wheel.name}", flush=True)
    programs = environment(python, folder / "check", TORCH, *wheels)
    script = folder / "script.py"
    script.write_text(SCRIPT)
    call(programs / "python", "-c", ADD, folder=folder)
    call(programs / "isthmus", "doctor", folder=folder)
    call(programs / "isthmus", "run", script, folder=folder)
    conform = ("conform", "run", "--driver", "host", "--operators", "aten::add.Tensor")
    call(programs / "isthmus", *conform, "--output", folder / "report", folder=folder)


def main(pythons: list[str]) -> list[Path]:
    """Build and check the wheels for each Python; return their paths."""
    made: dict[Path, None] = {}
    for python in pythons:
        wheels = build(python, ROOT / "build" / "wheel" / Path(python).name)
        with tempfile.TemporaryDirectory() as folder:
            check(python, wheels, Path(folder))
        made |= dict.fromkeys(wheels)
        print(f"make: {', '.join(wheel.name for wheel in wheels)} in dist/ passed their check")
    return list(made)


if __name__ == "__main__":
    main(sys.argv[1:])
