"""What the Triton kernels are run on: for each operator, calls of odd sizes, strides and dtypes.

A process of its own runs them (tests/test_ops_triton.py): Triton reads TRITON_INTERPRET when it is imported.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from isthmus import ops
from isthmus.ops.operators import operators

Calls = Iterator[tuple[Any, ...]]
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# Of the largest element: float32 inside, rounded once.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float64: 1e-11}


def _random(*shape: int, dtype: torch.dtype, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape, dtype=torch.float64) * scale).to(dtype)


def _rows(dtype: torch.dtype) -> Iterator[torch.Tensor]:
    for shape in ((2, 3, 33), (1, 1), (5, 1031), (0, 7), (3, 0)):
        yield _random(*shape, dtype=dtype)
    yield _random(9, 5, dtype=dtype).T
    yield _random(4, 3, 40, dtype=dtype)[:, :, :21]


def _rms_norm(dtype: torch.dtype) -> Calls:
    for x in _rows(dtype):
        yield x, _random(x.shape[-1], dtype=dtype), 1e-6
    yield _random(3, 16, dtype=dtype), None, 1e-3
    yield _random(3, 16, dtype=dtype), _random(16, dtype=torch.float32), 1e-3


def _add_rms_norm(dtype: torch.dtype) -> Calls:
    for x in _rows(dtype):
        yield x, _random(*x.shape, dtype=dtype), _random(x.shape[-1], dtype=dtype), 1e-6
    yield _random(3, 16, dtype=dtype), _random(16, 3, dtype=dtype).T, None, 1e-3


def _rms_norm_backward(dtype: torch.dtype) -> Calls:
    wide = torch.promote_types(dtype, torch.float32)
    for index, x in enumerate(_rows(dtype)):
        weight = None if index == 1 else _random(x.shape[-1], dtype=dtype)
        grad_sum = _random(*x.shape, dtype=dtype) if index % 2 else None
        rstd = torch.rand(*x.shape[:-1], 1).to(wide)
        yield _random(*x.shape, dtype=dtype), grad_sum, x, weight, rstd


def _swiglu(dtype: torch.dtype) -> Calls:
    for x in _rows(dtype):
        yield x, _random(*x.shape, dtype=dtype), -1
    yield _random(3, 1030, dtype=dtype), None, -1
    yield _random(3, 4, 5, dtype=dtype), None, 1
    yield _random(6, 5, dtype=dtype), None, -2
    yield _random(40, 3, dtype=dtype).T, None, 1
    yield _random(3, 2062, dtype=dtype)[:, :1031], _random(3, 2062, dtype=dtype)[:, 1031:], -1


def _swiglu_backward(dtype: torch.dtype) -> Calls:
    for gate, up, dim in _swiglu(dtype):
        shape = list(gate.shape)
        if up is None:
            shape[dim] //= 2
        yield _random(*shape, dtype=dtype), gate, up, dim
    yield _random(5, 3, dtype=dtype).T, _random(3, 10, dtype=dtype), None, 1


CASES: dict[str, Callable[[torch.dtype], Calls]] = {
    "rms_norm": _rms_norm,
    "add_rms_norm": _add_rms_norm,
    "rms_norm_backward": _rms_norm_backward,
    "swiglu": _swiglu,
    "swiglu_backward": _swiglu_backward,
}


def calls(name: str) -> Iterator[tuple[torch.dtype, tuple[Any, ...]]]:
    """The calls of an operator, with the dtype of its tensors."""
    torch.manual_seed(0)
    for dtype in DTYPES:
        for arguments in CASES[name](dtype):
            yield dtype, arguments


def check(name: str) -> int:
    """Compare the operator's Triton kernel with its composite in float64; how many calls were compared."""
    done = 0
    for dtype, arguments in calls(name):
        expected = _tensors(_changed(operators()[name].composite, _each(arguments, _widened)))
        with ops.use(name, "triton"):
            got = _tensors(_changed(operators()[name], _each(arguments, lambda tensor: tensor)))
        assert len(got) == len(expected)
        for index, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
            _close(f"{name} {dtype} call {done} tensor {index}", ours, theirs, dtype)
        done += 1
    return done


def _close(place: str, ours: Any, theirs: Any, dtype: torch.dtype) -> None:
    assert (ours is None) == (theirs is None), place
    if ours is None:
        return
    finite = theirs[theirs.isfinite()]
    limit = TOLERANCE[dtype] * max(1.0, finite.abs().max().item() if finite.numel() else 0.0)
    torch.testing.assert_close(
        ours.double(), theirs.double(), rtol=0, atol=limit, equal_nan=True, msg=lambda m: f"{place}: {m}"
    )


def _changed(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
    """What the function returns, and its arguments as they are afterwards."""
    made = function(*arguments)
    results = list(made) if isinstance(made, tuple) else [made]
    return [*results, *arguments]


def _tensors(values: Any) -> list[Any]:
    found: list[Any] = []
    for each in values:
        if isinstance(each, list):
            found += _tensors(each)
        elif each is None or isinstance(each, torch.Tensor):
            found.append(each)
    return found


def _each(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(_each(item, change) for item in value)
    return change(value) if isinstance(value, torch.Tensor) else value


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.float64 if tensor.is_floating_point() else tensor.dtype, copy=True)


def compile_for_hopper(name: str) -> set[str]:
    """Compile what the operator's calls launch for sm_90, launching nothing; the kernels' names and dtypes."""
    import importlib

    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile
    from triton.runtime.jit import JITFunction, mangle_type

    from isthmus.ops.triton import family

    done: set[str] = set()

    def compiled(kernel: Any, *given: Any, grid: Any, warmup: bool, num_warps: int = 4, **named: Any) -> None:
        values = dict(zip(kernel.arg_names, given, strict=False)) | named
        fixed = {each.name: values[each.name] for each in kernel.params if each.is_constexpr}
        fixed |= {key: None for key, value in values.items() if value is None}
        signature = {
            key: "constexpr" if key in fixed else mangle_type(value) for key, value in values.items()
        }
        if (key := f"{kernel.fn.__name__} {signature} {fixed} {num_warps}") in done:
            return
        source = ASTSource(kernel, signature, {(kernel.arg_names.index(k),): v for k, v in fixed.items()})
        made = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": num_warps})
        assert ".target sm_90" in made.asm["ptx"] and made.asm["cubin"]
        done.add(key)

    run, JITFunction.run = JITFunction.run, compiled
    try:
        launched = getattr(importlib.import_module(f"isthmus.ops.triton.{family(name)}"), name)
        seen: set[Any] = set()
        for dtype, arguments in calls(name):
            if arguments[0].numel() and dtype not in seen:
                seen.add(dtype)
                launched(*arguments)
    finally:
        JITFunction.run = run
    return done
