"""Make the environment of ``make vllm``: vLLM from its source distribution, without compiled kernels.

    python -m tools.vllm.environment 0.33.0

It lies in ``build/vllm-VERSION``; the packages of this checkout are installed in place. vLLM's own tests are
fetched when they are asked for.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from itertools import filterfalse
from pathlib import Path

from tools.repository import ROOT
from tools.requirements import requirements

# Build requirements of vLLM, except PyTorch.
_BUILD = [
    "setuptools>=77.0.3,<81",
    "setuptools-scm>=8",
    "setuptools-rust>=1.9",
    "wheel",
    "packaging",
    "jinja2",
]
# Proposes tokens of n-grams in speculative decoding; vLLM's requirements name it for its CPU and CUDA builds only.
_EXTRA = ["numba==0.65.0"]
_FROM_SOURCE = ("--no-build-isolation", "--no-deps", "--no-binary", "vllm")
# The build of the later ones imports the first ones.
_PACKAGES = [["isthmus-common", "isthmus"], ["isthmus-triton", "isthmus-ascend", "isthmus-vllm"]]
_TESTS = [
    "expecttest",
    "peft",
    "pytest>=9.2",
    "pytest-asyncio",
    "pytest-mock",
    "pytest-timeout>=2.4",
    "scipy",
    "tblib",
    "trl",
]


def folder(version: str) -> Path:
    """The environment for a version of vLLM."""
    return ROOT / "build" / f"vllm-{version}"


def make(version: str) -> Path:
    """Make the environment, or finish it, and return its Python."""
    home = folder(version)
    python = home / "bin" / "python"
    if (home / "complete").exists():
        return python
    print(f"make: creating {home.relative_to(ROOT)}", flush=True)
    if not python.exists():
        _run([sys.executable, "-m", "venv", str(home)])
    print("make: installing torch", flush=True)
    _pip(python, *_BUILD, *_pinned("torch", "triton"))
    print(f"make: building vllm {version} without compiled kernels", flush=True)
    _pip(python, *_FROM_SOURCE, f"vllm=={version}", **_plain(version))
    print("make: installing what vllm and the packages of this checkout require", flush=True)
    projects = [ROOT / "packages" / name / "pyproject.toml" for names in _PACKAGES for name in names]
    ours = requirements(projects, [])
    _pip(python, *_requirements(python), *filterfalse(_is_torch, ours), *_EXTRA)
    print("make: installing the packages of this checkout", flush=True)
    for names in _PACKAGES:
        editable = [each for name in names for each in ("--editable", str(ROOT / "packages" / name))]
        _pip(python, "--no-build-isolation", "--no-deps", *editable, ISTHMUS_BUILD="none")
    (home / "complete").touch()
    return python


def source(version: str) -> Path:
    """The folder of vLLM's source distribution, of which it has the tests."""
    home = folder(version)
    unpacked = home / "source" / f"vllm-{version}"
    if not unpacked.exists():
        archive = home / f"vllm-{version}.tar.gz"
        if not archive.exists():
            what = ("--dest", str(home), f"vllm=={version}")
            _pip(home / "bin" / "python", *_FROM_SOURCE, *what, verb="download", **_plain(version))
        with tarfile.open(archive) as opened:
            found = [each for each in opened.getmembers() if f"vllm-{version}/tests/" in each.name]
            opened.extractall(home / "source", found, filter="data")
    return unpacked


def prepare_tests(version: str) -> None:
    """Install what the tests of the plugin and of vLLM require."""
    home = folder(version)
    if not (home / "complete-tests").exists():
        print("make: installing what the tests require", flush=True)
        _pip(home / "bin" / "python", *_TESTS)
        (home / "complete-tests").touch()


def _plain(version: str) -> dict[str, str]:
    return {"VLLM_TARGET_DEVICE": "empty", "VLLM_VERSION_OVERRIDE": version}


def _pinned(*names: str) -> list[str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return [line for line in lines if line.split("==")[0] in names]


def _requirements(python: Path) -> list[str]:
    """What the installed vLLM requires, but PyTorch and what is compiled for CUDA."""
    code = "from importlib.metadata import requires; print('\\n'.join(requires('vllm') or []))"
    found = subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True).stdout
    return [each for each in found.splitlines() if each and "extra ==" not in each and not _is_torch(each)]


def _is_torch(requirement: str) -> bool:
    name = re.match(r"[\w.-]+", requirement)
    return name is not None and name[0].lower() in ("torch", "torchvision", "torchaudio", "triton")


def _pip(python: Path, *arguments: str, verb: str = "install", **environment: str) -> None:
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", verb, "--quiet", "--quiet"]
    _run(
        [*pip, *(["--no-compile"] if verb == "install" else []), *arguments],
        {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}", **environment},
    )


def _run(command: list[str], environment: dict[str, str] | None = None) -> None:
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, **(environment or {})})


if __name__ == "__main__":
    try:
        make(sys.argv[1])
    except subprocess.CalledProcessError as error:
        sys.exit(f"make: {' '.join(error.cmd[3:6])} failed with {error.returncode}; see the lines above")
