"""The driver and the compiler that Triton finds: refusals, caches, what scripts ask."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from tests.helpers.children import output

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")


@triton.jit
def scale_kernel(x, factor, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) * factor)


@triton.jit
def assembly_kernel(x):
    tl.store(x, tl.inline_asm_elementwise("brev.b32 $0, $1;", "=r,r", [tl.load(x)], tl.int32, True, 1))


@triton.jit
def instructions_kernel(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    value = tl.inline_asm_elementwise("mov.f32 $0, $1;", "=r,r", [value], tl.float32, True, 1)
    value = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [value], tl.float32, True, 1)
    short = value.to(tl.bfloat16)
    short = tl.inline_asm_elementwise(
        "mul.rn.bf16x2 $0, $1, $2;", "=r,r,r", [short, short], tl.bfloat16, True, 2
    )
    tl.store(out + at, short)


def test_single_instructions_of_inline_assembly():
    x, out = torch.randn(64), torch.zeros(64, dtype=torch.bfloat16)
    instructions_kernel[(1,)](x, out, 64)
    torch.testing.assert_close(out, torch.tanh(x).bfloat16() ** 2, rtol=2**-7, atol=0)


def test_what_a_cpu_cannot_do_is_refused_by_name():
    with pytest.raises(
        NotImplementedError, match="'assembly_kernel' uses inline assembly, which cannot be printed as C"
    ):
        assembly_kernel[(1,)](torch.ones(1, dtype=torch.int32))
    with pytest.raises(ValueError, match="launch_cooperative_grid"):
        scale_kernel[(1,)](torch.ones(16), 2.0, 16, launch_cooperative_grid=True)


def test_configurations_that_print_the_same_c_share_a_library(monkeypatch):
    from isthmus_triton import build

    x = torch.ones(8)
    scale_kernel[(1,)](x, 3.0, 8, num_warps=1)
    monkeypatch.setattr(build, "_compile", None)
    for warps, stages in ((2, 1), (4, 2), (8, 5)):
        scale_kernel[(1,)](x, 0.5, 8, num_warps=warps, num_stages=stages)
    assert x.tolist() == [0.375] * 8


def test_a_number_may_come_in_any_width():
    x = torch.ones(8, dtype=torch.float64)
    scale_kernel[(1,)](x, 3, 8)
    scale_kernel[(1,)](x, True, 8)
    scale_kernel[(1,)](x, 2**40, 8)
    assert x.tolist() == [3.0 * 2**40] * 8


@triton.autotune(
    [triton.Config({"STEP": 2**at}, num_warps=warps) for at in range(4) for warps in (1, 2)], ["n"]
)
@triton.jit
def tuned_kernel(x, n, STEP: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for start in range(0, n, BLOCK * STEP):
        for step in tl.static_range(STEP):
            tl.store(x + start + step * BLOCK + at, tl.load(x + start + step * BLOCK + at) * 1.25)


def test_configurations_are_compiled_ahead_by_threads(monkeypatch, tmp_path):
    from isthmus_triton import build

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    texts = []
    compile = build._compile
    monkeypatch.setattr(build, "_compile", lambda text, options: texts.append(text) or compile(text, options))
    with ThreadPoolExecutor(2) as threads, triton.AsyncCompileMode(threads):
        tuned_kernel.warmup(torch.float32, 64, BLOCK=4, grid=(1,))
    assert 0 < len(texts) == len(set(texts)) <= 4
    monkeypatch.setattr(build, "_compile", None)
    x = torch.ones(64)
    tuned_kernel.fn[(1,)](x, 64, STEP=2, BLOCK=4, num_warps=2)
    assert x.tolist() == [1.25] * 64


@triton.jit
def fill_kernel(x, BLOCK: tl.constexpr, value):
    tl.store(x + tl.arange(0, BLOCK), value)


def test_a_compiled_kernel_takes_its_arguments_without_constants():
    x = torch.zeros(8)
    kernel = fill_kernel[(1,)](x, 8, 2)
    kernel[(1, 1, 1)](x, 3)
    assert x.tolist() == [3.0] * 8
    kernel[(1, 1, 1)](x, 8, 4)
    assert x.tolist() == [4.0] * 8


@triton.jit
def rows_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(n):
        total += tl.load(x + row * BLOCK + at)
    tl.store(out + tl.program_id(0) * BLOCK + at, total)


def test_launches_are_work_of_the_current_stream():
    libc, semaphore = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    assert libc.sem_init(semaphore, 0, 0) == 0
    x, out = torch.ones(50, 256, device="chip"), torch.zeros(50, 256, device="chip")
    side = torch.chip.Stream()
    torch.chip.synchronize()
    with torch.chip.stream(side):
        side.launch_host_function(
            ctypes.cast(libc.sem_wait, ctypes.c_void_p).value, ctypes.addressof(semaphore)
        )
        rows_kernel[(50,)](x, out, 50, 256)
        rows_kernel[(50,)](out, x, 1, 256)
        rows_kernel[(50,)](x, out, 50, 256)
        done = side.record_event()
    assert not side.query() and not done.query()
    libc.sem_post(semaphore)
    torch.chip.current_stream().wait_event(done)
    assert torch.equal(out + 0, torch.full((50, 256), 2500.0, device="chip"))


class Pointer:
    """A pointer that is no tensor."""

    def __init__(self, tensor):
        self.dtype, self.data_ptr = tensor.dtype, tensor.data_ptr


def test_memory_without_a_tensor_is_in_order():
    x, out = torch.ones(50, 256, device="chip"), torch.zeros(50, 256, device="chip")
    for _ in range(20):
        rows_kernel[(50,)](x, out, 50, 256)
        rows_kernel[(50,)](Pointer(out), Pointer(x), 1, 256)
        assert torch.equal(x, torch.full((50, 256), 50.0, device="chip"))
        x.fill_(1.0)


def test_launches_are_counted_as_kernels_and_replayed_by_graphs():
    x, out, graph = torch.ones(50, 256, device="chip"), torch.zeros(1, 256, device="chip"), torch.chip.Graph()
    torch.chip.reset_dispatch_stats()
    with torch.chip.graph(graph):
        y = x + 1
        rows_kernel[(1,)](y, out, 50, 256)
    assert not out.any()  # the capture has changed nothing
    assert torch.chip.dispatch_stats()["operators"]["triton::rows_kernel"] == {"route": "kernel", "calls": 1}
    x.fill_(2.0)
    graph.replay()
    assert torch.equal(out.cpu(), torch.full((1, 256), 150.0))


def test_a_grid_without_programs_does_nothing():
    x = torch.ones(8)
    scale_kernel[(0, 3)](x, 3.0, 8)
    assert x.tolist() == [1.0] * 8


def test_benchmarks_measure():
    x = torch.ones(1024, device="chip")
    assert 0 < triton.testing.do_bench(lambda: scale_kernel[(1,)](x, 1.0, 1024), warmup=1, rep=2) < 1000


def test_without_pytorchs_accelerator_kernels_run_on_the_cpu():
    code = """
        import torch, triton, triton.testing
        from isthmus_triton.driver import Driver
        print(Driver().get_active_torch_device(), Driver().get_current_target().backend)
        import sys
        print("isthmus" in sys.modules)
        print(triton.testing.do_bench(lambda: torch.ones(9) + 1, warmup=1, rep=1) > 0)
    """
    assert output(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").split() == ["cpu", "cpu", "False", "True"]


def test_a_missing_compiler_is_named(tmp_path):
    code = """
        from isthmus_triton import build
        try:
            build.library("", True)
        except RuntimeError as error:
            print(error)
    """
    expected = "Triton kernels need a C compiler, and there is no absent-cc: install gcc, or set CC to one"
    assert output(code, CC="absent-cc -O2") == expected


def test_c_that_crashes_the_vectoriser_compiles_without_it(tmp_path):
    compiler = tmp_path / "crashing-cc"
    compiler.write_text("""#!/bin/sh
case "$*" in
    -v | *-fno-tree-vectorize*) exec gcc "$@" ;;
    *) echo "kernel.c:1:1: internal compiler error: in recog" >&2; exit 1 ;;
esac
""")
    compiler.chmod(0o755)
    code = """
        from isthmus_triton import build
        print(len(build.library("int launch;", True)) > 1000)
    """
    assert output(code, CC=str(compiler), TRITON_CACHE_DIR=str(tmp_path)) == "True"


def test_c_that_does_not_compile_is_kept(tmp_path):
    code = """
        from isthmus_triton import build
        try:
            build.library("int launch(", True)
        except RuntimeError as error:
            path = str(error).split("(the C is in ")[1].rstrip(")")
            print(open(path).read(), "does not compile" in str(error))
    """
    assert output(code, TMPDIR=tmp_path, TRITON_CACHE_DIR=tmp_path) == "int launch( True"


@triton.jit
def asserting_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.device_assert((value >= 0) & (value < n), "index in bounds")
    tl.store(out + at, tl.load(x + value), mask=at < n)


# Inductor's option: assertions alone, without checks of accesses.
ASSERTIONS = {"debug": True, "sanitize_overflow": False}
FAILED = r"asserting_kernel: device assertion failed: index in bounds\n  \S*test_driver.py:\d+\n  program \(3, 0, 0\)"


@pytest.mark.parametrize("device", ("cpu", "chip"))
def test_a_failed_assertion_is_an_error_of_the_launch_or_of_its_stream(device):
    x = torch.arange(64, dtype=torch.int32, device=device)
    out = torch.zeros_like(x)
    asserting_kernel[(4,)](x, out, 64, 16, **ASSERTIONS)
    assert torch.equal(out, x)
    x[50] = 1 << 30
    if device == "cpu":
        with pytest.raises(RuntimeError, match=FAILED):
            asserting_kernel[(4,)](x, out, 64, 16, **ASSERTIONS)
    else:
        asserting_kernel[(4,)](x, out, 64, 16, **ASSERTIONS)
        rows_kernel[(1,)](x, out, 1, 16)  # is not begun
        with pytest.raises(RuntimeError, match=FAILED):
            torch.chip.synchronize()
    x[50] = 5
    asserting_kernel[(4,)](x, out, 64, 16, **ASSERTIONS)
    assert out[50].item() == 5


def test_kernels_of_a_job_and_of_others_are_cached_apart() -> None:
    """Triton reads a cached kernel by the backend of its target, which a job calls cuda."""
    from triton.backends.compiler import GPUTarget

    from isthmus_triton.compiler import Backend

    targets = [GPUTarget(name, "native", 1) for name in ("cpu", "chip", "cuda", "npu")]
    digests = {Backend.hash(SimpleNamespace(target=each)) for each in targets}
    assert len(digests) == 4
