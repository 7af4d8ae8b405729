"""Generated pointwise kernels against the kernels of the NumPy library, and the generators' inputs and failures."""

from __future__ import annotations

import ast
import inspect
import stat
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from isthmus import opset
from isthmus.conformance.calling import DeviceTensor, Frame, make_context
from isthmus.drivers.generators import c, load
from isthmus.drivers.libraries import LibraryError, LoadedOperator, address_of, import_tvm_ffi
from isthmus.drivers.numpy.operators import library
from isthmus.opset import dtypes as dt
from isthmus.opset import pointwise
from isthmus.opset.pointwise import Kernel, Run, Step, Value

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
GENERATORS = pytest.mark.parametrize("generator", ["c", pytest.param("triton", marks=needs_triton)])
BOOLEAN = "eq ne lt le gt ge logical isnan isinf"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def placed(array: np.ndarray[Any, Any]) -> DeviceTensor:
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return DeviceTensor(array.ctypes.data, dt.name_of(array.dtype), array.shape, strides)


def call(kernel: Kernel, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
    frame = Frame((1, 0))
    for array in arrays:
        frame.push(placed(array))
    context, _callbacks = make_context(0, 0, 0, lambda _: 0, [])
    address, handle, function = kernel.function, kernel.handle, None
    if not isinstance(address, int):
        function = import_tvm_ffi().convert(address)
        address, handle = address_of(function)
    frame.call(LoadedOperator("run", 0, kernel.flags, address, handle), context, [])


def arguments_of(overload: str) -> dict[str, Any]:
    """Arrays for the tensors of an operator, and numbers for the rest."""
    random = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for argument in opset.schema_of(f"aten::{overload}").inputs:
        if argument.name in ("condition", "mask"):
            made[argument.name] = random.random((5, 7)) > 0.5
        elif argument.is_tensor:
            made[argument.name] = random.normal(0.4, 1, (5, 7)).astype(np.float32)
        else:
            made[argument.name] = {"alpha": 1, "approximate": "none"}.get(argument.name, 0.75)
    return made


def run_of(overload: str, given: dict[str, Any]) -> Run:
    expression = pointwise.expression_of(overload, given)
    assert expression is not None
    tensors = [name for name, value in given.items() if isinstance(value, np.ndarray)]
    names = [name for name in given if name in expression]
    operands = {name: Value(tensors.index(name)) if name in tensors else given[name] for name in names}
    is_bool = overload.partition(".")[0].startswith(tuple(BOOLEAN.split()))
    step = Step(expression, operands, "float32", "bool" if is_bool else "float32")
    return Run(tuple(dt.name_of(given[name].dtype) for name in tensors), (step,), (len(tensors),))


def overloads() -> list[str]:
    named = [*pointwise.EXPRESSIONS, "gelu", "gelu_backward", "clamp", "clamp_min", "hardtanh"]
    integers = [name for name in named if name.startswith("bitwise")]
    return [name for name in named if f"aten::{name}" in library.entries and name not in integers]


def compare(generator: str, names: Sequence[str]) -> None:
    """Against the NumPy library, whose arithmetic is in float64 as that of the C kernels."""
    tolerance = {"c": 1e-7, "triton": 2e-6}[generator]  # an ulp is 6e-8 to 1.2e-7
    cases = [(name, arguments_of(name)) for name in names]
    kernels = load(generator).generate([run_of(name, given) for name, given in cases])
    for (name, given), kernel in zip(cases, kernels, strict=True):
        dtype = np.dtype(run_of(name, given).steps[0].dtype)
        expected, out = np.empty((5, 7), dtype), np.empty((7, 5), dtype).T
        function = library.entries[f"aten::{name}"].function
        more = {"context": None} if "context" in inspect.signature(function).parameters else {}
        function(*given.values(), expected, **more)
        call(kernel, [*(value for value in given.values() if isinstance(value, np.ndarray)), out])
        assert np.allclose(out, expected, rtol=tolerance, atol=0, equal_nan=True), name


@GENERATORS
def test_kernels_equal_those_of_numpy(generator: str) -> None:
    compare(generator, ["add.Tensor", "exp", "where.self", "gt.Scalar", "gelu", "maximum"])


@GENERATORS
@pytest.mark.full
def test_kernels_of_all_expressions(generator: str) -> None:
    assert len(overloads()) > 80
    compare(generator, overloads())


@GENERATORS
def test_broadcasting_strides_dtypes_and_several_outputs(generator: str) -> None:
    """(a + b) in float32, rounded to bfloat16; and the integer sum i + 1, by other strides."""
    steps = (
        Step("self + other", {"self": Value(0), "other": Value(1)}, "float32", "float32"),
        Step("self", {"self": Value(3)}, "float32", "bfloat16"),
        Step("self + other", {"self": Value(2), "other": 1}, "int8", "int8"),
    )
    (kernel,) = load(generator).generate([Run(("float32", "float32", "int8"), steps, (4, 5))])
    a, b = np.arange(12, dtype=np.float32).reshape(3, 4) / 3, np.float32([[1], [2], [3]])
    i = np.array([127, 1, 2, 3], np.int8)
    rounded, sums = np.empty((3, 4), dt.DTYPES["bfloat16"].numpy), np.empty((4, 3), np.int8).T
    call(kernel, [a, b, i, rounded, sums])
    assert (rounded == (a + b).astype(rounded.dtype)).all()
    assert (sums == np.array([-128, 2, 3, 4], np.int8)).all()
    empty = np.empty((0, 4), np.float32)
    call(kernel, [empty, np.float32([[1]]), i, rounded[:0], sums[:0]])


EXACT = (
    "self + other", "self - other", "self * other", "self / other", "maximum(self, other)", "minimum(self, other)",
    "where(self < other, self, other)", "self == other", "-self", "abs(self)", "self & other", "sqrt(self)",
    "rint(self)", "floor(self)",
)  # fmt: skip


def exact_run(dtype: str) -> Run:
    """Steps that have one right result each: operators in a dtype, and conversions to the others."""
    floating = dt.DTYPES[dtype].kind == "float"
    texts = [t for t in EXACT if (t != "self & other" if floating else "/" not in t and t not in EXACT[-3:])]
    steps = [
        Step(t, {name: Value(i) for i, name in enumerate(("self", "other")) if name in t}, dtype,
             "bool" if "==" in t else dtype)
        for t in texts
    ]  # fmt: skip
    others = dt.FLOATS if floating else dt.ALL
    steps += [Step("self", {"self": Value(0)}, dtype, other) for other in others]
    return Run((dtype, dtype), tuple(steps), tuple(range(2, 2 + len(steps))))


def bits(dtype: str, count: int) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(0)
    if dtype == "bool":
        return random.random(count) > 0.5
    of = dt.DTYPES[dtype].numpy
    drawn = np.frombuffer(random.bytes(count * of.itemsize), of)
    few = random.integers(-3, 4, 64).astype(of)
    return np.concatenate([drawn, few, few * few.dtype.type(0)])  # with zeros of both signs


@needs_triton
@pytest.mark.full
def test_exactly_rounded_steps_are_equal_to_the_bit() -> None:
    runs = [exact_run(dtype) for dtype in dt.ALL]
    for dtype, run, *kernels in zip(
        dt.ALL, runs, c.generate(runs), load("triton").generate(runs), strict=True
    ):
        first = bits(dtype, 3000)
        made = []
        for kernel in kernels:
            outs = [np.empty(first.shape, dt.DTYPES[run.dtype(i)].numpy) for i in run.outputs]
            call(kernel, [first, first[::-1], *outs])
            made.append(outs)
        for step, left, right in zip(run.steps, *made, strict=True):
            same = (left.view(np.uint8) == right.view(np.uint8)).reshape(len(first), -1).all(1)
            assert (same | (np.isnan(left) & np.isnan(right))).all(), step


def run_of_all() -> Run:
    """Every expression, of one float32 tensor and a mask."""
    texts = {pointwise.expression_of(name, arguments_of(name)) for name in overloads()}
    steps = []
    for text in sorted(filter(None, texts)):
        names = {
            node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)
        } - pointwise.FUNCTIONS
        operands = {name: Value(int(name in ("condition", "mask"))) for name in names}
        steps.append(Step(text, operands, "float32", "float32"))
    return Run(("float32", "bool"), tuple(steps), tuple(range(2, 2 + len(steps))))


@needs_triton
@pytest.mark.full
def test_triton_kernels_compile_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """They compile as with the active backend of a maker, but for launches; roundings are those of the C kernels."""
    from triton import runtime
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile
    from triton.runtime.jit import mangle_type

    from isthmus.drivers.generators import triton

    target, codes = GPUTarget("cuda", 90, 32), []

    def compiled(kernel: Any, *given: Any, grid: Any, warmup: bool, **options: Any) -> None:
        values = dict(zip(kernel.arg_names, given, strict=True))
        fixed = {each.name: values[each.name] for each in kernel.params if each.is_constexpr}
        kinds = {name: "constexpr" if name in fixed else mangle_type(value) for name, value in values.items()}
        fixed |= {name: 1 for name, kind in kinds.items() if kind == "constexpr" and name not in fixed}
        source = ASTSource(kernel, kinds, {(kernel.arg_names.index(k),): v for k, v in fixed.items()})
        codes.append(compile(source, target=target, options=options).asm["ptx"])

    monkeypatch.setattr(triton, "vendor_backend", lambda: "the maker's")
    monkeypatch.setattr(runtime.JITFunction, "run", compiled)
    monkeypatch.setattr(runtime.driver, "_active", SimpleNamespace(get_current_target=lambda: target))
    triton._options.cache_clear()
    runs = [exact_run("float32"), exact_run("bfloat16"), exact_run("int8"), run_of_all()]
    for run, kernel in zip(runs, triton.generate(runs), strict=True):
        tensors = [(5, 7), *[(5, 1)] * (len(run.inputs) - 1), *[(5, 7)] * len(run.outputs)]
        dtypes = map(run.dtype, (*range(len(run.inputs)), *run.outputs))
        call(kernel, [np.ones(shape, dt.DTYPES[d].numpy) for shape, d in zip(tensors, dtypes, strict=True)])
    triton._options.cache_clear()
    assert len(codes) == 4
    assert "div.rn.f32" in codes[0] and "sqrt.rn.f32" in codes[0]
    assert not any("fma.rn.f32" in code for code in codes[:3])


@GENERATORS
def test_clamps_and_numbers_keep_the_sign_of_a_zero(generator: str) -> None:
    clamped = Step(
        "minimum(maximum(self, bound), bound)", {"self": Value(0), "bound": 0.0}, "float32", "float32"
    )
    rectified = Step(pointwise.EXPRESSIONS["relu"], {"self": Value(0)}, "float32", "float32")
    filled = Step("where(self > 0, 1, value)", {"self": Value(0), "value": -0.0}, "float32", "float32")
    (kernel,) = load(generator).generate([Run(("float32",), (clamped, rectified, filled), (1, 2, 3))])
    zeros, outs = np.float32([-0.0, 0.0]), [np.empty(2, np.float32) for _ in range(3)]
    call(kernel, [zeros, *outs])
    assert [np.signbit(out).tolist() for out in outs] == [*[[True, False]] * 2, [True, True]]


def test_libraries_are_kept_where_only_the_user_writes(tmp_path: Path) -> None:
    run = run_of("add.Tensor", arguments_of("add.Tensor"))
    c.generate([run])
    folder = tmp_path / "isthmus" / "kernels"
    (made,) = folder.glob("*.so")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    written = made.stat().st_mtime_ns
    c.generate([run])
    assert made.stat().st_mtime_ns == written
    folder.chmod(0o777)
    made.unlink()
    c.generate([run])
    assert not made.exists()


def test_a_missing_or_failing_compiler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of("add.Tensor", arguments_of("add.Tensor"))
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(
        c.CompilerError, match="no C compiler 'no-such-compiler' to fuse operators with; install"
    ):
        c.generate([run])
    monkeypatch.setenv("CC", "false")
    with pytest.raises(c.CompilerError, match="false failed to compile fused operators"):
        c.generate([run])


def test_a_makers_generator_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("SHORTEST = 3\ndef generate(runs):\n    return []\n")
    generator = load(str(file))
    assert (generator.shortest, generator.generate([])) == (3, [])
    file.write_text("x = 1\n")
    with pytest.raises(LibraryError, match="has no function `generate`"):
        load(str(file))
    with pytest.raises(
        LibraryError, match="unknown code generator 'cuda'; expected c, triton or a Python file"
    ):
        load("cuda")
    with pytest.raises(LibraryError, match=r"absent\.py is not a file; check"):
        load(str(tmp_path / "absent.py"))


def test_a_generator_has_modules_beside_it_and_kernels_with_handles(tmp_path: Path) -> None:
    """The handle is the first argument of the function, which one address serves for every run."""
    (tmp_path / "beside.py").write_text("NUMBER = 41\n")
    (tmp_path / "mine.py").write_text(
        "import ctypes\n"
        "from beside import NUMBER\n"
        "from isthmus.opset.library import HOST\n"
        "from isthmus.opset.pointwise import Kernel\n"
        "MOST_OPERANDS = 7\n"
        "seen = []\n"
        "call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)(\n"
        "    lambda handle, arguments, count, result: seen.append(handle) or 0)\n"
        "def generate(runs):\n"
        "    address = ctypes.cast(call, ctypes.c_void_p).value\n"
        "    return [Kernel(address, HOST, NUMBER + i) for i, _ in enumerate(runs)]\n"
    )
    generator = load(str(tmp_path / "mine.py"))
    assert (generator.shortest, generator.most_operands) == (2, 7)
    run = Run(("float32",), (Step("exp(self)", {"self": Value(0)}, "float32", "float32"),), (1,))
    kernels = generator.generate([run, run])
    for kernel in kernels:
        call(kernel, [np.zeros(2, np.float32), np.zeros(2, np.float32)])
    assert generator.generate.__globals__["seen"] == [41, 42]


@pytest.mark.parametrize("exponent", [2, 3, 2.0])
def test_small_powers_are_products(exponent: float) -> None:
    expression = pointwise.expression_of("pow.Tensor_Scalar", {"self": None, "exponent": exponent})
    assert expression == " * ".join(["self"] * int(exponent))
