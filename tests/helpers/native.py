"""Compile C and C++ of the tests against the headers for chip makers."""

from __future__ import annotations

import importlib.util
import subprocess
import sysconfig
from pathlib import Path

import isthmus

CSRC = Path(isthmus.include_path())
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")


def operator_interface() -> Path:
    """Folder of TVM-FFI's headers, found without importing it, which would import torch."""
    spec = importlib.util.find_spec("tvm_ffi")
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "include"


def compiler(standard: str) -> list[str]:
    """The compiler of the environment for ``c11``, ``c++17`` ..."""
    variable = "CXX" if "+" in standard else "CC"
    return [(sysconfig.get_config_var(variable) or "cc").split()[0], f"-std={standard}"]


def compile_text(
    text: str, output: Path, standard: str = "c11", first: Path = CSRC
) -> subprocess.CompletedProcess[str]:
    """Make a shared library of a source text.

    Args:
        text: the source.
        output: the library; the source lies beside it.
        standard: of the language.
        first: folder that is searched for headers before csrc.
    """
    source = output.with_suffix(".cpp" if "+" in standard else ".c")
    source.write_text(text)
    folders = [flag for path in (first, CSRC, operator_interface()) for flag in ("-I", str(path))]
    command = [*compiler(standard), *WARNINGS, *folders, "-shared", "-fPIC", "-fvisibility=hidden"]
    return subprocess.run(
        [*command, "-o", str(output), str(source)], capture_output=True, text=True, check=False, timeout=120
    )
