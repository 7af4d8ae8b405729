"""Make the environment of ``make vllm``: vLLM from its source distribution, without compiled kernels.

    python -m tools.vllm.environment 0.33.0

It lies in ``build/vllm-VERSION``, with vLLM's source; the packages of this checkout are installed in place.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tools.repository import ROOT

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
_PACKAGES = ["isthmus-common", "isthmus", "isthmus-triton", "isthmus-ascend", "isthmus-vllm"]
_TESTS = [
    "expecttest",
    "peft",
    "pytest>=9.2",
    "pytest-asyncio",
    "pytest-mock",
    "pytest-timeout>=2.4",
    "scipy",
    "tblib",
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
    plain = {"VLLM_TARGET_DEVICE": "empty", "VLLM_VERSION_OVERRIDE": version}
    source = home / f"vllm-{version}.tar.gz"
    if not source.exists():
        options = ("--no-build-isolation", "--no-deps", "--no-binary", "vllm", "--dest", str(home))
        _pip(python, *options, f"vllm=={version}", verb="download", **plain)
    _pip(python, "--no-build-isolation", "--no-deps", str(source), **plain)
    print("make: installing what vllm requires", flush=True)
    _pip(python, *_requirements(python), *_EXTRA, *_TESTS)
    print("make: installing the packages of this checkout", flush=True)
    for name in _PACKAGES:
        _pip(python, *_requirements_of(name))
        _pip(
            python,
            "--no-build-isolation",
            "--no-deps",
            "--editable",
            str(ROOT / "packages" / name),
            ISTHMUS_BUILD="none",
        )
    (home / "complete").touch()
    return python


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


def _requirements_of(package: str) -> list[str]:
    import tomllib

    project = tomllib.loads((ROOT / "packages" / package / "pyproject.toml").read_text("utf-8"))["project"]
    return [
        each for each in project["dependencies"] if not each.startswith(("isthmus", "torch", "triton"))
    ] or ["packaging"]


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
