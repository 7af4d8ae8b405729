"""Cost of the kernel route: an empty operator with preallocated outputs, in C++ and in Python.

Goal: at most 1.1 times an empty TORCH_LIBRARY operator in C++, and at most 1.7 times one of Library.define + impl in
Python. Each of the four does nothing with three tensors of one element and is called from Python.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

UNFAIR = (
    "Peers that do different amounts of work: all four have the same three tensor arguments, return nothing, and are "
    "called through torch.ops in the same round, with gradients off."
)
SCHEMA = "(Tensor a, Tensor b, Tensor(a!) out) -> ()"

PYTHON_LIBRARY = """
from isthmus.opset.library import Library

library = Library("bench-python", "an empty operator in Python")


@library.operator("isthmus_bench::python_kernel", dtypes=("float32",), strided=True, raw=True)
def empty(context, a, b, out):
    pass
"""

CPP_LIBRARY = """
#define ISTHMUS_OPERATORS_IMPLEMENTATION
#include "operators.h"

static int empty(void*, const TVMFFIAny*, int32_t, TVMFFIAny*) { return 0; }
static const isthmus_operator kOperators[] = {
    {"isthmus_bench::cpp_kernel", ISTHMUS_DTYPE(FLOAT32), ISTHMUS_OPERATOR_STRIDED, empty, nullptr}};
static const isthmus_operator_library kLibrary = {sizeof(isthmus_operator_library), ISTHMUS_OPERATORS_VERSION,
    "bench-cpp", "an empty operator in C++", sizeof(isthmus_operator), 1, kOperators};
const isthmus_operator_library* isthmus_operators_get(uint32_t) { return &kLibrary; }
"""

TORCH_OPERATOR = """
#include <torch/library.h>
static void empty(const at::Tensor&, const at::Tensor&, at::Tensor&) {}
TORCH_LIBRARY(isthmus_bench_torch, m) { m.def("cpp(Tensor a, Tensor b, Tensor(a!) out) -> ()"); }
TORCH_LIBRARY_IMPL(isthmus_bench_torch, PrivateUse1, m) { m.impl("cpp", empty); }
"""


def write_libraries(folder: Path) -> str:
    """Write both operator libraries; return the value of ISTHMUS_LIBRARIES."""
    import tvm_ffi.libinfo

    import isthmus

    python, source, library = folder / "bench_python.py", folder / "bench.cpp", folder / "bench.so"
    python.write_text(PYTHON_LIBRARY)
    source.write_text(CPP_LIBRARY)
    includes = [f"-I{path}" for path in (isthmus.include_path(), tvm_ffi.libinfo.find_include_path())]
    command = ["c++", "-O2", "-shared", "-fPIC", *includes, str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    return os.pathsep.join((str(python), str(library)))


def operators(folder: Path) -> dict[str, Callable[[], Any]]:
    """Return the four peers."""
    import torch
    from torch.utils.cpp_extension import load_inline

    define = torch.library.Library("isthmus_bench", "DEF")
    for name in ("python_kernel", "cpp_kernel", "python_torch"):
        define.define(name + SCHEMA)
    define.impl("python_torch", lambda a, b, out: None, "PrivateUse1")
    load_inline(
        "isthmus_bench_torch",
        TORCH_OPERATOR,
        build_directory=str(folder),
        is_python_module=False,
        verbose=False,
    )
    a, b, out = (torch.ones(1, device="chip") for _ in range(3))
    ours, theirs = torch.ops.isthmus_bench, torch.ops.isthmus_bench_torch
    overloads = {
        "C++ kernel": ours.cpp_kernel.default,
        "C++ TORCH_LIBRARY": theirs.cpp.default,
        "Python kernel": ours.python_kernel.default,
        "Python define+impl": ours.python_torch.default,
    }
    operators.keep = define  # type: ignore[attr-defined]
    return {name: lambda call=call: call(a, b, out) for name, call in overloads.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=31, help="measured rounds (default 31)")
    parser.add_argument(
        "--calls", type=int, default=20000, help="calls per operator and round (default 20000)"
    )
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder is None:  # the libraries must exist before `import torch`
        with tempfile.TemporaryDirectory() as name:
            environment = dict(
                os.environ, ISTHMUS_LIBRARIES=write_libraries(Path(name)), ISTHMUS_DRIVER="host"
            )
            command = [sys.executable, __file__, *sys.argv[1:], "--folder", name]
            raise SystemExit(subprocess.run(command, env=environment, check=False).returncode)
    measure(options)


def measure(options: argparse.Namespace) -> None:
    """Time the peers and print both ratios."""
    import torch
    from harness import interleave, per_call, print_table, ratio, save

    torch.set_num_threads(1)
    with torch.no_grad():
        peers = {name: per_call(call, options.calls) for name, call in operators(options.folder).items()}
        times = interleave(peers, rounds=options.rounds)
    rows = [{"operator": name, "us": timing.median * 1e6} for name, timing in times.items()]
    print_table(rows)
    ratios = {
        "C++": ratio(times["C++ kernel"], times["C++ TORCH_LIBRARY"]),
        "Python": ratio(times["Python kernel"], times["Python define+impl"]),
    }
    print(
        f"kernel / PyTorch's own: C++ {ratios['C++']:.2f} (goal at most 1.10), "
        f"Python {ratios['Python']:.2f} (goal at most 1.70)"
    )
    rows += [{"operator": f"{name} kernel / PyTorch's own", "us": value} for name, value in ratios.items()]
    save("kernel_route", rows, unfair=UNFAIR, settings={"rounds": options.rounds, "calls": options.calls})


if __name__ == "__main__":
    main()
