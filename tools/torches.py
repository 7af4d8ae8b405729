"""PyTorch unpacked without what it requires: to compile against, or to compare. It is not imported."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

from tools.repository import ROOT

FOLDER = ROOT / "build" / "torch"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
# Minor versions of glibc 2 that wheels name, up to the one of PyTorch's own.
GLIBC = range(28, 16, -1)


def pip_options(python: str, machine: str) -> list[str]:
    """Return the options with which pip chooses wheels for a Python and a machine: "3.11", "aarch64"."""
    tags = [f"manylinux_2_{minor}_{machine}" for minor in GLIBC] + [f"manylinux2014_{machine}"]
    chosen = [word for tag in tags for word in ("--platform", tag)]
    return ["--only-binary=:all:", "--no-compile", "--python-version", python, *chosen]


def has_torch(folder: Path) -> bool:
    """Whether a folder holds an unpacked PyTorch."""
    return (folder / "torch" / "version.py").is_file()


def fetch(version: str, python: str = PYTHON, machine: str = platform.machine()) -> Path:
    """Return a folder that holds ``torch/`` and ``torchgen/`` of a version; download it once."""
    folder = FOLDER / f"{version}-{python}-{machine}"
    if not has_torch(folder):
        print(f"make: fetching torch {version} into {folder.relative_to(ROOT)}", flush=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
        target = ["--target", str(folder), f"torch=={version}"]
        subprocess.run([*pip, *pip_options(python, machine), *target], check=True)
    return folder
