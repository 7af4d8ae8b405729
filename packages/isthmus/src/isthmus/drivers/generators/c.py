"""Runs of pointwise operators as C functions, compiled by the host's compiler: for chips whose kernels compute in the
calling thread (ISTHMUS_OPERATOR_HOST).

A step computes in float64, or int64, and is rounded once to its dtype. For additions, products, quotients and square
roots of float32 this is the rounding of float32 arithmetic itself. Contraction to fused multiply-add is off.
"""

import ctypes
import hashlib
import math
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import isthmus
from isthmus.drivers.generators.expressions import Printer
from isthmus.drivers.libraries import import_tvm_ffi
from isthmus.opset import dtypes as dt
from isthmus.opset.library import HOST, STRIDED
from isthmus.opset.pointwise import Kernel, Run, Step, Value
from isthmus_common.files import make_folder, user_cache, write_file

SHORTEST = 1  # chips that compute on the host have libraries for reference, not for speed
FLAGS = "-O3 -fPIC -shared -std=gnu11 -ffp-contract=off -fno-math-errno -fno-trapping-math -fwrapv -w".split()
_HEADER = Path(__file__).with_name("pointwise.h")
_loaded: list[ctypes.CDLL] = []  # never unloaded: the dispatcher holds addresses in them


class CompilerError(RuntimeError):
    """The host's compiler is absent or failed; one line."""


def generate(runs: Sequence[Run]) -> list[Kernel]:
    """Compile runs to one library, or take it from the cache (``$XDG_CACHE_HOME/isthmus/kernels``).

    Raises:
        CompilerError: no compiler, or it failed.
    """
    source = "\n".join(['#include "pointwise.h"', *map(source_of, runs)])
    library = ctypes.CDLL(str(_compiled(source)))
    _loaded.append(library)
    address = ctypes.c_void_p
    return [
        Kernel(ctypes.cast(getattr(library, run.name), address).value or 0, HOST | STRIDED) for run in runs
    ]


def source_of(run: Run) -> str:
    """The C function of a run."""
    count = len(run.inputs)
    loads = [
        f"  const {_wide_type(name)} v{i} = LOAD_{name}(p[{i}] + j * s[{i}]);"
        for i, name in enumerate(run.inputs)
    ]
    steps = [
        f"  const {_wide_type(s.dtype)} v{i} = {_round(_expression(run, s), s.compute, s.dtype)};"
        for i, s in enumerate(run.steps, count)
    ]
    stores = [
        f"  STORE_{run.dtype(index)}(p[{count + k}] + j * s[{count + k}], v{index});"
        for k, index in enumerate(run.outputs)
    ]
    widths = [dt.DTYPES[run.dtype(i)].numpy.itemsize for i in (*range(count), *run.outputs)]
    body = "\n".join([*loads, *steps, *stores])
    return f"POINTWISE({run.name}, {count}, {len(run.outputs)}, ({', '.join(map(str, widths))}), {{\n{body}\n}})\n"


def _is_float(dtype: str) -> bool:
    return dt.DTYPES[dtype].kind == "float"


def _wide_type(dtype: str) -> str:
    return "double" if _is_float(dtype) else "int64_t"


def _round(text: str, have: str, dtype: str) -> str:
    """A wide value as one that the dtype can hold."""
    if dtype == "bool":
        return f"(({text}) != 0)"
    return f"ROUND_{dtype}({text})"


def _expression(run: Run, step: Step) -> str:
    names = {name: _operand(run, step, operand) for name, operand in step.operands.items()}
    floating = _is_float(step.compute)
    number, call = partial(_number, floating=floating), partial(_call, floating=floating)
    return Printer(names, number, call).text(step.expression)


def _operand(run: Run, step: Step, operand: Value | bool | int | float) -> str:
    if not isinstance(operand, Value):
        return _number(operand, _is_float(step.compute))
    name, dtype = f"v{operand.position}", run.dtype(operand.position)
    if dtype == step.compute:
        return name
    return f"ROUND_{step.compute}({name})"


def _number(number: bool | int | float, floating: bool) -> str:
    if not floating:
        return f"INT64_C({int(number)})"
    value = float(number)
    if not math.isfinite(value):
        return {"nan": "NAN", "inf": "INFINITY", "-inf": "(-INFINITY)"}[str(value)]
    return f"({value.hex()})"


def _call(name: str, arguments: list[str], floating: bool) -> str:
    if name == "where":
        return f"({arguments[0]} ? {arguments[1]} : {arguments[2]})"
    suffix = ("_f" if floating else "_i") if name in ("abs", "maximum", "minimum") else ""
    return f"{name}{suffix}({', '.join(arguments)})"


def _compiled(source: str) -> Path:
    """The library of a source."""
    command = [*_compiler(), *FLAGS, *_include_flags()]
    key = hashlib.sha256("\0".join([source, _HEADER.read_text(), *command]).encode()).hexdigest()[:24]
    path = _cache() / f"pointwise-{key}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            text, made = Path(folder, "pointwise.c"), Path(folder, "pointwise.so")
            text.write_text(source)
            found = subprocess.run(
                [*command, str(text), "-o", str(made), "-lm"], capture_output=True, text=True, check=False
            )
            if found.returncode:
                reason = next(
                    (line for line in found.stderr.splitlines() if "error" in line), found.stderr[-200:]
                )
                raise CompilerError(f"{command[0]} failed to compile fused operators: {reason.strip()}")
            write_file(path, made.read_bytes(), 0o750)
    return path


def _compiler() -> list[str]:
    asked = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if not shutil.which(asked[0]):
        raise CompilerError(f"no C compiler {asked[0]!r} to fuse operators with; install one or set CC")
    return asked


def _include_flags() -> list[str]:
    folders = [_HEADER.parent, isthmus.include_path(), *import_tvm_ffi().libinfo.include_paths()]
    return [f"-I{folder}" for folder in folders]


def _cache() -> Path:
    """The folder of compiled libraries; another one for this process if others may write to it."""
    folder = user_cache() / "kernels"
    make_folder(folder)
    status = folder.stat()
    if status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return folder
    return Path(tempfile.mkdtemp(prefix="isthmus-kernels-"))
