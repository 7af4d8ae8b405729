"""Cost of the reference runtime of AscendCL itself: a call of aclnnAdd on one element, and its part of the import.

Goals: a call at most 1.5 us beyond at::add_out of the same element; at most 0.3 s of `import torch_npu`. The call is
made below torch_npu: objects, both phases, the stream. The import needs torch_npu (`make ascend` installs it).
"""

import argparse
import ctypes
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from harness import difference, in_process, interleave, print_table, ratio, save
from torch.utils.cpp_extension import include_paths, library_paths

from isthmus_ascend.environment import LIBRARIES

ROOT = Path(__file__).resolve().parents[1]
NPU = ROOT / "build/torch_npu"
UNFAIR = (
    "Autograd or several threads on one side only, a busy second core (the stream's thread runs there), or a cold "
    "page cache at the import: hence one thread, no gradients, interleaved peers and warm-up rounds."
)
# CPU time: waiting for a busy processor is not a cost of the import.
IMPORT = "import time; import torch; start = time.process_time(); {}; print(time.process_time() - start)"
OWN = """import ctypes, glob, os
folder = os.environ["ISTHMUS_BENCHMARK_LIBRARIES"]
for path in glob.glob(os.path.join(folder, "*.so")): ctypes.CDLL(path)
runtime = ctypes.CDLL(os.path.join(folder, "libascendcl.so"))
assert runtime.aclInit(None) == 0 and runtime.aclrtSetDevice(0) == 0"""


def compiled(folder: str) -> ctypes.CDLL:
    """Compile ascend_overhead.cpp."""
    target = Path(folder) / "ascend_overhead.so"
    system = [flag for path in include_paths() for flag in ("-isystem", path)]
    libraries = [f"-L{path}" for path in library_paths()]
    libraries += [
        f"-L{LIBRARIES}",
        f"-Wl,-rpath,{LIBRARIES}",
        "-lascendcl",
        "-lopapi",
        "-lc10",
        "-ltorch_cpu",
    ]
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O2", "-shared", "-fPIC", "-o", str(target)]
    source = str(Path(__file__).with_suffix(".cpp"))
    subprocess.run([*command, *system, source, *libraries], check=True)
    library = ctypes.CDLL(str(target))
    library.runtime_add.restype = library.aten_add.restype = ctypes.c_double
    return library


def measure_calls(rounds: int, calls: int) -> dict[str, Any]:
    """Return the row of aclnnAdd."""
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(folder)
        count = ctypes.c_int64(calls)
        peers: dict[str, Callable[[], float]] = {
            "aten": lambda: library.aten_add(count),
            "call": lambda: library.runtime_add(count, False),
            "whole": lambda: library.runtime_add(count, True),
        }
        times = interleave(peers, rounds=rounds)
    return {
        "what": "aclnnAdd",
        "aten_us": times["aten"].median * 1e6,
        "call_us": times["call"].median * 1e6,
        "whole_us": times["whole"].median * 1e6,
        "added_us": difference(times["whole"], times["aten"]) * 1e6,
        "call_added_us": difference(times["call"], times["aten"]) * 1e6,
        "ratio": ratio(times["whole"], times["aten"]),
    }


def in_child(code: str) -> Callable[[], float]:
    """Make a peer that runs code below the runtime in a fresh interpreter and returns the printed seconds."""
    path = [str(ROOT), str(NPU), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return in_process(
        *("-m", "isthmus", "ascend", "run", "-c", code),
        PYTHONPATH=os.pathsep.join(filter(None, path)),
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
        ISTHMUS_BENCHMARK_LIBRARIES=str(LIBRARIES),
    )


def measure_import(rounds: int) -> dict[str, Any]:
    """Return the row of the import: all of it after torch's, and what loading and starting our libraries takes."""
    whole, own = IMPORT.format("import torch_npu"), IMPORT.format(f"exec({OWN!r})")
    times = interleave({"whole": in_child(whole), "own": in_child(own)}, rounds=rounds, warm_up=1)
    return {
        "what": "import torch_npu after torch",
        "whole_s": times["whole"].median,
        "own_s": times["own"].median,
        "share": ratio(times["own"], times["whole"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=501, help="measured rounds of calls (default 501)")
    parser.add_argument("--calls", type=int, default=1000, help="calls in a round (default 1000)")
    parser.add_argument("--imports", type=int, default=7, help="measured rounds of imports (default 7)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure_calls(options.rounds, options.calls)]
    print_table(rows)
    print(f"added: {rows[0]['added_us']:+.3f} us (goal at most +1.500)")
    if NPU.exists():
        rows.append(measure_import(options.imports))
        print_table(rows[1:])
        print(f"import: {rows[1]['own_s']:.3f} s by the runtime's libraries (goal at most 0.300)")
    else:
        print("import: not measured; `make ascend` installs torch_npu")
    save("ascend_overhead", rows, unfair=UNFAIR, settings=vars(options))


if __name__ == "__main__":
    main()
