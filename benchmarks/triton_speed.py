"""Triton kernels compiled by isthmus-triton against PyTorch's CPU kernels, in CPU time of one thread.

Kernels: the tutorials' (`triton_kernels.py`) and Liger-Kernel's, if it is installed. Besides: an empty launch, the
compilation of each kernel, two threads against one, and Triton's interpreter. Goals: `GOALS`; a launch 5 us, a
compilation 300 ms, two threads 1.7 times as fast, 100 times as fast as the interpreter.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import triton_kernels as kernels
from harness import interleave, per_call, print_table, ratio, save

UNFAIR = (
    "PyTorch's kernels choose their blocks by size; a Triton kernel has those of its launch, here the same for every "
    "size. Liger-Kernel writes over its inputs; both peers get copies, which are not timed. Time is the process's, "
    "so other work of the machine matters only by its traffic; two threads are timed by the wall, and the fastest "
    "round counts."
)
GOALS = {
    "add": 1.1, "softmax": 1.1, "layer norm": 1.0, "layer norm backward": 1.5, "matmul float32": 1.15,
    "matmul bfloat16": 1.5, "attention": 1.15, "attention causal": 1.15, "Liger RMSNorm": 1.0, "Liger SwiGLU": 1.0,
    "Liger cross entropy": 1.0,
}  # fmt: skip
SECONDS = 0.02  # of a measurement, at least


class Case(NamedTuple):
    """Work of both peers: functions of the tensors that `make` returns; tensors are fresh in every call."""

    name: str
    size: str
    make: Callable[[], tuple[Any, ...]]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    tolerance: float = 1e-5


def fixed(*tensors: Any) -> Callable[[], tuple[Any, ...]]:
    """Return a function that returns the same tensors."""
    return lambda: tensors


def cases() -> list[Case]:
    """The kernels of the tutorials."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 1 << 20)
    found = [Case("add", "1048576", fixed(x, y), kernels.add, torch.add)]
    for columns in (781, 1024, 4096):
        rows = torch.randn(1024, columns)
        found.append(
            Case("softmax", f"1024x{columns}", fixed(rows), kernels.softmax, lambda x: torch.softmax(x, 1))
        )
    rows, weight, bias, gradient = (
        torch.randn(1024, 1024),
        torch.rand(1024),
        torch.rand(1024),
        torch.randn(1024, 1024),
    )
    inputs, forward = fixed(rows, weight, bias), torch.native_layer_norm
    found.append(
        Case(
            "layer norm",
            "1024x1024",
            inputs,
            kernels.norm,
            lambda x, w, b: forward(x, x.shape[1:], w, b, 1e-5),
        )
    )
    _, means, rstds = forward(rows, rows.shape[1:], weight, bias, 1e-5)
    found.append(
        Case(
            "layer norm backward",
            "1024x1024",
            fixed(gradient, rows, weight, means, rstds),
            lambda dy, x, w, m, r: kernels.norm_backward(dy, x, w, m.flatten(), r.flatten()),
            lambda dy, x, w, m, r: torch.ops.aten.native_layer_norm_backward(
                dy, x, x.shape[1:], m, r, w, bias, [True, True, True]
            ),
        )
    )
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
        for m, n, k in ((512, 512, 512), (1024, 1024, 1024), (777, 1000, 901)):
            a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
            name = f"matmul {str(dtype).removeprefix('torch.')}"
            found.append(Case(name, f"{m}x{n}x{k}", fixed(a, b), kernels.matmul, torch.mm, tolerance))
    q, k, v = torch.randn(3, 8, 1024, 64)
    for causal in (False, True):
        found.append(
            Case(
                "attention causal" if causal else "attention",
                "8x1024x64",
                fixed(q, k, v),
                lambda q, k, v, causal=causal: kernels.attention(q, k, v, causal),
                lambda q, k, v, causal=causal: F.scaled_dot_product_attention(
                    q[None], k[None], v[None], is_causal=causal
                )[0],
            )
        )
    return found


def liger_cases() -> list[Case]:
    """Operators of Liger-Kernel, forward and backward in one."""
    try:
        from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction
        from liger_kernel.ops.rms_norm import LigerRMSNormFunction
        from liger_kernel.ops.swiglu import LigerSiLUMulFunction
    except ImportError as error:
        print(f"Liger-Kernel is not measured: {error}")
        return []
    found = []

    def with_gradients(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
        def call(gradient: torch.Tensor, *inputs: torch.Tensor) -> Any:
            out = function(*inputs)
            leaves = [each for each in inputs if each.requires_grad]
            return torch.autograd.grad(out, leaves, gradient.expand(out.shape))

        return call

    def fresh(*tensors: torch.Tensor) -> Callable[[], tuple[Any, ...]]:
        return lambda: tuple(each.detach().clone().requires_grad_(each.requires_grad) for each in tensors)

    for dtype in (torch.float32, torch.bfloat16):
        tolerance = 1e-5 if dtype == torch.float32 else 2e-2
        name = str(dtype).removeprefix("torch.")
        x, weight = torch.randn(1024, 1024, dtype=dtype), torch.rand(1024, dtype=dtype)
        inputs = fresh(torch.randn_like(x), x.requires_grad_(), weight.requires_grad_())
        ours = with_gradients(lambda x, w: LigerRMSNormFunction.apply(x, w, 1e-6))
        theirs = with_gradients(lambda x, w: F.rms_norm(x, x.shape[1:], w, 1e-6))
        found.append(Case("Liger RMSNorm", f"1024x1024 {name}", inputs, ours, theirs, tolerance))
        a, b = torch.randn(2, 1024, 2816, dtype=dtype)
        inputs = fresh(torch.randn_like(a), a.requires_grad_(), b.requires_grad_())
        ours = with_gradients(LigerSiLUMulFunction.apply)
        theirs = with_gradients(lambda a, b: F.silu(a) * b)
        found.append(Case("Liger SwiGLU", f"1024x2816 {name}", inputs, ours, theirs, tolerance))
        scores, classes = torch.randn(256, 32000, dtype=dtype), torch.randint(0, 32000, (256,))
        inputs = fresh(torch.ones((), dtype=dtype), scores.requires_grad_(), classes)
        ours = with_gradients(lambda x, y: LigerCrossEntropyFunction.apply(x, y, None)[0])
        theirs = with_gradients(F.cross_entropy)
        found.append(Case("Liger cross entropy", f"256x32000 {name}", inputs, ours, theirs, tolerance))
    return found


def check(case: Case) -> None:
    """Compare both peers' results.

    Raises:
        SystemExit: they differ.
    """
    results = []
    for function in (case.ours, case.theirs):
        result = function(*case.make())
        results.append(result if isinstance(result, tuple) else (result,))
    for ours, theirs in zip(*results, strict=True):
        right = theirs.reshape(ours.shape).double()
        difference, largest = (ours.double() - right).abs().max(), right.abs().max()
        if not difference <= case.tolerance * max(1.0, largest):
            raise SystemExit(f"triton_speed: {case.name} {case.size} differs from PyTorch's result")


def peer(case: Case, function: Callable[..., Any], clock: Callable[[], float]) -> Callable[[], float]:
    """Make a peer that returns seconds per call."""

    def once() -> float:
        inputs = case.make()
        start = clock()
        function(*inputs)
        return clock() - start

    once()
    calls = max(1, round(SECONDS / max(1e-6, min(once() for _ in range(3)))))
    return lambda: sum(once() for _ in range(calls)) / calls


def measure(found: list[Case], rounds: int) -> list[dict[str, Any]]:
    """Return a row per case: milliseconds of both peers, and their ratio."""
    rows = []
    for case in found:
        check(case)
        peers = {
            "ours": peer(case, case.ours, time.process_time),
            "theirs": peer(case, case.theirs, time.process_time),
        }
        times = interleave(peers, rounds=rounds)
        rows.append(
            {
                "kernel": case.name,
                "size": case.size,
                "ms": times["ours"].median * 1e3,
                "pytorch_ms": times["theirs"].median * 1e3,
                "ratio": ratio(times["ours"], times["theirs"]),
                "goal": GOALS[case.name],
            }
        )
    return rows


def launch_rows(rounds: int) -> list[dict[str, Any]]:
    """Return microseconds of an empty kernel's launch, on CPU tensors and on the chip's."""
    rows = []
    for device in ("cpu", "chip"):
        x = torch.ones(16, device=device)
        launch = per_call(lambda x=x: kernels.empty_kernel[(1,)](x, 16), 2000, time.process_time)
        timing = interleave({device: launch}, rounds=rounds)[device]
        rows.append({"launch on": device, "us": timing.median * 1e6, "goal": 5.0})
    return rows


def thread_rows(found: list[Case], rounds: int) -> list[dict[str, Any]]:
    """Return how much faster two threads are than one."""
    rows = []
    for case in found:

        def peer_of(threads: int, case: Case = case) -> Callable[[], float]:
            torch.set_num_threads(threads)
            timed = peer(case, case.ours, time.perf_counter)

            def run() -> float:
                torch.set_num_threads(threads)
                return timed()

            return run

        times = interleave({str(threads): peer_of(threads) for threads in (1, 2)}, rounds=rounds)
        rows.append(
            {
                "two threads": case.name,
                "size": case.size,
                "speedup": times["1"].best / times["2"].best,
                "goal": 1.7,
            }
        )
    torch.set_num_threads(1)
    return rows


def in_child(part: str, **environment: str) -> Any:
    """Run a part of this file in a process, and return what it prints last."""
    command = [sys.executable, __file__, "--part", part]
    done = subprocess.run(
        command, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def interpret() -> dict[str, float]:
    """Return seconds of each of the tutorials' kernels in this process, by the interpreter."""
    seconds = {}
    for case in cases():
        if "bfloat16" not in case.name:
            start = time.process_time()
            case.ours(*case.make())
            seconds[f"{case.name} {case.size}"] = time.process_time() - start
    return seconds


def compile_each() -> list[dict[str, Any]]:
    """Return the time of each kernel's first call in a fresh cache, less that of its second."""
    kernels.empty_kernel[(1,)](torch.ones(1), 1)
    rows: dict[str, dict[str, Any]] = {}
    for case in cases() + liger_cases():
        name = f"{case.name} {case.size.split()[-1]}" if case.name.startswith("Liger") else case.name
        if name in rows or (name.startswith("softmax") and "1024x1024" not in case.size):
            continue
        inputs, before, counts = case.make(), _cpu_seconds(), _libraries()
        case.ours(*inputs)
        first = _cpu_seconds() - before
        inputs, before = case.make(), _cpu_seconds()
        case.ours(*inputs)
        count = max(1, _libraries() - counts)
        spent = max(0.0, first - (_cpu_seconds() - before))
        rows[name] = {"compile": name, "kernels": count, "ms_per_kernel": spent / count * 1e3, "goal": 300}
    return list(rows.values())


def _cpu_seconds() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, kinds))


def _libraries() -> int:
    folder = os.environ["TRITON_CACHE_DIR"]
    return sum(name == "kernel.so" for _, _, names in os.walk(folder) for name in names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="measured rounds (default 15)")
    parser.add_argument(
        "--only", default="", help="measure only cases whose name contains this, save nothing"
    )
    parser.add_argument("--part", choices=("interpret", "compile"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.part:
        print(json.dumps(interpret() if options.part == "interpret" else compile_each()))
        return
    own, foreign = cases(), liger_cases()
    chosen = [case for case in own + foreign if options.only in f"{case.name} {case.size}"]
    rows = measure(chosen, options.rounds)
    print_table(rows)
    if options.only:
        return
    launches = launch_rows(options.rounds)
    print_table(launches)
    with tempfile.TemporaryDirectory() as folder:
        compiled = in_child("compile", TRITON_CACHE_DIR=folder)
    print_table(compiled)
    threads = thread_rows([case for case in own if "bfloat16" not in case.name], options.rounds)
    print_table(threads)
    interpreted = in_child("interpret", TRITON_INTERPRET="1")
    slower = [
        {"interpreter": name, "ratio": seconds * 1e3 / row["ms"], "goal": 100}
        for row in rows
        for name, seconds in interpreted.items()
        if name == f"{row['kernel']} {row['size']}"
    ]
    print_table(slower)
    save(
        "triton_speed",
        [*rows, *launches, *compiled, *threads, *slower],
        unfair=UNFAIR,
        settings={"rounds": options.rounds},
    )


if __name__ == "__main__":
    main()
