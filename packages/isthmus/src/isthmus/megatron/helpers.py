"""Build Megatron's C++ dataset helpers for the current Python."""

import importlib
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path


def compile_helpers(_: Callable[[], None]) -> Callable[[], None]:
    """Replacement for ``compile_helpers`` with this Python's headers and PyTorch's pybind11."""

    def compile() -> None:
        module = importlib.import_module("megatron.core.datasets.utils")
        folder = Path(str(module.__file__)).parent
        source, target = (
            folder / "helpers.cpp",
            folder / f"helpers_cpp{sysconfig.get_config_var('EXT_SUFFIX')}",
        )
        if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
            _build(source, target)

    return compile


def _build(source: Path, target: Path) -> None:
    import torch

    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        raise RuntimeError("Megatron's dataset helpers need a C++ compiler; install g++ or set CXX")
    beside = target.with_name(f"{target.name}.{os.getpid()}")
    includes = [sysconfig.get_path("include"), str(Path(torch.__file__).parent / "include")]
    command = [compiler, "-O3", "-shared", "-std=c++17", "-fPIC", *(f"-I{each}" for each in includes)]
    done = subprocess.run(
        [*command, str(source), "-o", str(beside)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        beside.unlink(missing_ok=True)
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        raise RuntimeError(f"cannot build {source}: {errors[0] if errors else done.stderr.strip()}")
    beside.chmod(0o640)
    beside.replace(target)
