"""Build the fuzzers with each sanitizer and run them: ``make sanitize``.

They are of allocators, work that comes later, streams with events and captures, collectives, and the reference
runtime of AscendCL.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import torch
from torch.utils.cpp_extension import include_paths, library_paths

from isthmus_ascend.environment import operators
from tests.helpers.native import operator_interface
from tools.repository import ASCEND, CORE, ROOT

# UBSan runs together with ASan.
SANITIZERS = {"none": "", "address": "-fsanitize=address,undefined", "thread": "-fsanitize=thread"}
PROGRAMS = (
    ("planned", ""),
    ("torch", ""),
    ("torch", "expandable_segments:True"),
    ("torch", "max_split_size_mb:20,roundup_power2_divisions:4,garbage_collection_threshold:0.7"),
    ("bf", ""),
    ("bs", ""),
    ("raw", ""),
    ("lifetime", ""),
)
# Relative to the folder of a sanitizer; libascendcl.so finds the driver so.
DRIVER = "drivers/host/libisthmus_host.so"
ASCENDCL, HCCL, COMPILER = (f"ascend/lib/lib{name}.so" for name in ("ascendcl", "hccl", "acl_op_compiler"))
FAULTS = ("ecc:99", "hang:99", "oom:99")  # settings of ISTHMUS_ASCEND_FAULT
ALGORITHMS = ("", "mesh", "ring", "halving-doubling")
# Parts of the core that device memory needs; the others need PyTorch's dispatcher.
CORE_PARTS = (
    "runtime visible_devices capture host_work stream stream_trace event profiler profiler_events".split()
)
FOLDERS = " ".join(f"-I{package}/{folder}" for package in (CORE, ASCEND) for folder in ("csrc", "build"))
NOT_OF_A_POLICY = {"host_allocator"}


def sources(fuzzer: str) -> list[Path]:
    memory = [path for path in (CORE / "csrc/memory").rglob("*.cpp") if path.stem not in NOT_OF_A_POLICY]
    core = [CORE / f"csrc/core/{name}.cpp" for name in CORE_PARTS]
    return [*memory, *core, *(CORE / "csrc/loader").glob("*.cpp"), ROOT / f"tools/sanitize/{fuzzer}.cpp"]


def compiled_name(path: Path) -> str:
    return f"objects/{path.relative_to(ROOT).with_suffix('.o')}"


def build(sanitizer: str, suites: Collection[str]) -> Path:
    """Build the suites' fuzzers and libraries with ninja, laid out as in the package; return their folder."""
    folder = ROOT / "build" / "sanitize" / sanitizer
    folder.mkdir(parents=True, exist_ok=True)
    ascend = folder / "ascend/lib"
    system = " ".join(f"-isystem {path}" for path in (*include_paths(), operator_interface()))
    libraries = " ".join(f"-L{path} -Wl,-rpath,{path}" for path in library_paths())
    lines = [
        f"flags = -std=c++20 -O1 -g -fno-omit-frame-pointer {SANITIZERS[sanitizer]} {FOLDERS}",
        "rule compile",
        f" command = {os.environ.get('CXX', 'c++')} $flags $more -MD -MF $out.d -c $in -o $out",
        " depfile = $out.d",
        " description = $in",
        "rule link",
        f" command = {os.environ.get('CXX', 'c++')} $flags $in -o $out $more",
    ]
    exports = f"-shared -Wl,--version-script={CORE}/csrc/drivers/host/exports.map -lpthread -ldl"
    shared = f"-shared -L{ascend} -Wl,-rpath,$$ORIGIN -lpthread -ldl"
    torch_libraries = (
        f"{libraries} -Wl,--no-as-needed -lc10 -ltorch -ltorch_cpu"  # libopapi.so finds them loaded
    )
    runtime = f"-L{ascend} -Wl,-rpath,{ascend}"
    host = sorted((CORE / "csrc/drivers/host").rglob("*.cpp"))
    groups = (
        (DRIVER, host, "-fPIC", exports, ""),
        *(
            (name, sorted(sources(name)), system, f"{libraries} -lc10 -ltorch_cpu -lpthread -ldl", "")
            for name in ("allocator_fuzz", "work_fuzz", "stream_fuzz")
        ),
        ("collective_fuzz", [ROOT / "tools/sanitize/collective_fuzz.cpp"], "", "-lpthread -ldl", ""),
        (ASCENDCL, sorted((ASCEND / "csrc/acl").glob("*.cpp")), "-fPIC", shared, ""),
        (HCCL, sorted((ASCEND / "csrc/hccl").glob("*.cpp")), "-fPIC", f"{shared} -lascendcl", ASCENDCL),
        (
            COMPILER,
            sorted((ASCEND / "csrc/op_compiler").glob("*.cpp")),
            "-fPIC",
            f"{shared} -lascendcl",
            ASCENDCL,
        ),
        (
            *("ascend_fuzz", [ROOT / "tools/sanitize/ascend_fuzz.cpp"], ""),
            f"{runtime} -lascendcl -lhccl -lacl_op_compiler -lpthread -ldl {torch_libraries}",
            f"{DRIVER} {ASCENDCL} {HCCL} {COMPILER}",
        ),
    )
    compiled = set[Path]()
    for target, files, compile_more, link_more, needed in groups:
        for path in files:
            if path not in compiled:
                lines += [f"build {compiled_name(path)}: compile {path}", f" more = {compile_more}"]
        compiled.update(files)
        objects = map(compiled_name, files)
        lines += [f"build {target}: link {' '.join(objects)} | {needed}", f" more = {link_more}"]
    (folder / "build.ninja").write_text("\n".join(lines) + "\n")
    targets = [DRIVER, *(f"{suite.removesuffix('s')}_fuzz" for suite in suites)]
    subprocess.run([sys.executable, "-m", "ninja", "-C", str(folder), "--quiet", *targets], check=True)
    return folder


def run(program: Path, *arguments: str, **environment: str) -> int:
    """Run a fuzzer under its sanitizer; return the exit status."""
    environment |= {
        "TSAN_OPTIONS": f"halt_on_error=1:suppressions={ROOT / 'tools/sanitize/thread.supp'}",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "ASAN_OPTIONS": "detect_leaks=0",  # device memory lives as long as the process by design
    }
    command = [str(program), *arguments]
    return subprocess.run(command, env=os.environ | environment, check=False, timeout=900).returncode


def run_allocators(folder: Path, seed: int, rounds: int) -> Iterator[tuple[str, int]]:
    """Run every allocator; yield its name and exit status."""
    # Small enough that threads run out of memory.
    environment = {"ISTHMUS_HOST_MEMORY": "192MiB", "ISTHMUS_HOST_DEVICES": "1"}
    for policy, options in PROGRAMS:
        arguments = (str(folder / DRIVER), policy, options, str(seed), str(rounds))
        yield f"{policy} '{options}'", run(folder / "allocator_fuzz", *arguments, **environment)


def run_work(folder: Path, seed: int, rounds: int) -> Iterator[tuple[str, int]]:
    """Run functions of the host that come later; yield what and the exit status."""
    environment = {"ISTHMUS_HOST_DEVICES": "1", "ISTHMUS_HOST_ASYNC": "1"}
    arguments = (str(folder / DRIVER), str(seed), str(rounds))
    yield "work that comes later", run(folder / "work_fuzz", *arguments, **environment)


def run_streams(folder: Path, seed: int, rounds: int) -> Iterator[tuple[str, int]]:
    """Run streams, events and captures that threads share, at once and later; yield what and the exit status."""
    for asynchronous in ("0", "1"):
        environment = {"ISTHMUS_HOST_DEVICES": "1", "ISTHMUS_HOST_ASYNC": asynchronous}
        arguments = (str(folder / DRIVER), str(seed), str(rounds))
        yield f"streams, ASYNC={asynchronous}", run(folder / "stream_fuzz", *arguments, **environment)


def run_collectives(folder: Path, seed: int, rounds: int) -> Iterator[tuple[str, int]]:
    """Run every all-reduce algorithm; yield its name and exit status. Strict mode delays streams."""
    for algorithm in ALGORITHMS:
        environment = {
            "ISTHMUS_HOST_DEVICES": "2",
            "ISTHMUS_HOST_COLLECTIVE": algorithm,
            "ISTHMUS_HOST_STRICT": str(seed % 2),
        }
        arguments = (str(folder / DRIVER), str(seed), str(rounds * 10))
        yield f"collectives '{algorithm}'", run(folder / "collective_fuzz", *arguments, **environment)


def run_ascend(folder: Path, seed: int, rounds: int) -> Iterator[tuple[str, int]]:
    """Run the AscendCL runtime's program on two devices, also with each fault; yield its name and exit status."""
    environment = {"ISTHMUS_ASCEND_DEVICES": "2", "ISTHMUS_ASCEND_MEMORY": "64MiB"}
    arguments = (str(seed), str(rounds * 200), str(operators() / "libopapi.so"))
    yield "ascend", run(folder / "ascend_fuzz", *arguments, **environment)
    for fault in FAULTS:
        environment["ISTHMUS_ASCEND_FAULT"] = fault
        yield f"ascend with {fault}", run(folder / "ascend_fuzz", *arguments, **environment)


SUITES = {
    "allocators": run_allocators,
    "work": run_work,
    "streams": run_streams,
    "collectives": run_collectives,
    "ascend": run_ascend,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.sanitize", description=__doc__)
    parser.add_argument("--sanitizer", choices=SANITIZERS, action="append", help="default: address, thread")
    parser.add_argument("--suite", choices=SUITES, action="append", help="default: all")
    parser.add_argument("--seeds", type=int, default=3, help="seeds for each (default: 3)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of 8 x 400 operations (default: 5)")
    given = parser.parse_args()
    failed = 0
    for sanitizer in given.sanitizer or ["address", "thread"]:
        print(f"{sanitizer}: building (torch {torch.__version__})", flush=True)
        folder = build(sanitizer, given.suite or SUITES)
        for seed in range(1, given.seeds + 1):
            for suite in given.suite or SUITES:
                for what, code in SUITES[suite](folder, seed, given.rounds):
                    if code != 0:
                        failed += 1
                        print(f"{sanitizer}: {what} seed {seed} exited with {code}", flush=True)
    print(f"sanitize: {failed} runs failed" if failed else "sanitize: all runs passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
