"""Cases of the Triton kernels: for each operator, calls of odd sizes, strides and dtypes.

A process of its own runs them (packages/isthmus/tests/ops/test_triton.py): Triton reads TRITON_INTERPRET when it is
imported.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from isthmus import ops
from isthmus.ops.registration import operators
from isthmus.ops.triton import is_interpreted

Calls = Iterator[tuple[Any, ...]]
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# Shares of the largest element: float32 inside, rounded once.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float64: 1e-11}

SHARED_MEMORY = 227 * 1024  # bytes that a program may take on sm_90


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


def _scaled_masked_softmax(dtype: torch.dtype) -> Calls:
    x = _random(2, 3, 5, 9, dtype=dtype, scale=3)
    mask = torch.rand(2, 1, 5, 9) > 0.6
    mask[1, 0, 2] = True  # a row without a key
    hidden = x.clone()
    hidden[mask.expand(x.shape)] = float("nan")
    yield x, None, 0.3, False
    yield x, None, -2.0, True
    yield x, mask, 0.5, False
    yield hidden, mask, 0.5, False
    yield x, mask.transpose(0, 2).contiguous().transpose(0, 2), 0.5, True
    yield x, torch.rand(9) > 0.5, 1.0, True
    yield x.transpose(1, 3), None, 1.0, True  # more queries than keys: rows without a key
    yield _random(4, 1031, dtype=dtype), torch.rand(4, 1) > 0.5, 1.0, False
    yield _random(2, 2, 2, 3, 4, dtype=dtype), torch.rand(2, 1, 2, 1, 4) > 0.5, 1.0, False
    yield _random(2, 0, 5, dtype=dtype), None, 1.0, True
    broken = x.clone()
    broken[0, 0, 1], broken[0, 1, 1, 3], broken[0, 2, 4] = float("nan"), float("inf"), float("-inf")
    yield broken, None, 1.0, False
    yield broken, None, 1.0, True


def _scaled_masked_softmax_backward(dtype: torch.dtype) -> Calls:
    for x, _, scale, causal in _scaled_masked_softmax(dtype):
        yield _random(*x.shape, dtype=dtype), x.double().softmax(-1).to(dtype), scale, causal
    yield _random(9, 5, dtype=dtype).T, _random(9, 5, dtype=dtype).T, 0.5, True


def _terms() -> Iterator[tuple[float, ...]]:
    yield -100, 0.0, 1.0, 0.0, 0.0
    yield 2, 0.1, 0.5, 0.0, 1e-2
    yield -100, 0.2, 2.0, 3.0, 1e-2


def _cross_entropy(dtype: torch.dtype) -> Calls:
    for terms in _terms():
        for shape in ((7, 33), (2, 3, 5), (1, 1), (0, 5)):
            target = torch.randint(shape[-1], shape[:-1])
            if target.numel() > 1:
                target.view(-1)[1] = terms[0]
            yield _random(*shape, dtype=dtype, scale=3), target, *terms
        yield _random(9, 6, dtype=dtype).T, torch.randint(9, (6,)), *terms
        yield _random(6, 20, dtype=dtype)[:, :11], torch.randint(11, (6,)), *terms
    lost = _random(3, 9001, dtype=dtype)
    lost[0, :8500], lost[1, 8600] = float("-inf"), float("inf")
    yield lost, torch.tensor([8999, 3, 5]), -100, 0.1, 0.5, 0.0, 1e-2


def _cross_entropy_backward(dtype: torch.dtype) -> Calls:
    wide = torch.promote_types(dtype, torch.float32)
    for index, (logits, target, *terms) in enumerate(_cross_entropy(dtype)):
        grad, grad_lse = _random(*target.shape, dtype=wide), _random(*target.shape, dtype=wide)
        lse = operators()["cross_entropy"].composite(logits, target, *terms)[1]
        yield grad, grad_lse if index % 2 else None, logits, target, lse, *terms


def _cross_entropy_backward_(dtype: torch.dtype) -> Calls:
    for grad, grad_lse, logits, *others in _cross_entropy_backward(dtype):
        yield logits, grad, grad_lse, *others


def _linear_cross_entropy(dtype: torch.dtype) -> Calls:
    for index, terms in enumerate(_terms()):
        hidden, weight = _random(9, 8, dtype=dtype, scale=0.5), _random(33, 8, dtype=dtype, scale=0.5)
        target, bias = torch.randint(33, (9,)), _random(33, dtype=dtype) if index else None
        target[1] = terms[0]
        grad = torch.rand(9).to(torch.promote_types(dtype, torch.float32)) if index else None
        yield hidden, weight, bias, target, grad, *terms, 4, [index != 1, True, bias is not None]


def _rotary(dtype: torch.dtype) -> Calls:
    def made(*shape: int) -> torch.Tensor:
        return _random(*shape, dtype=dtype)

    def tables(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
        return made(*shape), made(*shape)

    for interleaved, conjugate in ((False, False), (True, False), (False, True), (True, True)):
        how = (interleaved, conjugate)
        yield made(2, 5, 4, 18), made(2, 5, 2, 18), *tables(7, 9), None, 1, 18, -1, *how
        yield made(2, 5, 3, 18), None, *tables(5, 18), None, 1, 18, -1, *how
        yield made(2, 4, 6, 22), None, *tables(9, 8), torch.randint(9, (2, 4)), 1, 16, 4, *how
        yield made(2, 3, 5, 70), made(2, 1, 5, 70), *tables(2, 6, 66), None, 2, 66, -1, *how
    positions = torch.randint(9, (1, 5), dtype=torch.int32)
    yield made(2, 4, 5, 40)[..., :34], None, *tables(9, 17), positions, 2, 34, -1, False, False
    yield made(2, 4, 5, 34).transpose(1, 2), made(2, 6, 5, 34).transpose(1, 2), *tables(1, 5, 34), None, 1, 34, -1, \
        True, False  # fmt: skip
    yield made(2, 5, 18, 4).transpose(2, 3), made(2, 5, 2, 18), *tables(5, 9), None, 1, 18, 2, False, False
    yield made(2, 0, 3, 8), made(2, 0, 1, 8), *tables(3, 4), None, 1, 8, -1, False, False


def _attention(dtype: torch.dtype) -> Calls:
    """Lengths around those of the tiles, packed sequences, and every option."""
    if dtype == torch.float64:  # the composite's
        return
    window: dict[str, Any] = {"left": None, "right": None, "top_left": False}

    def call(q: Any, k: Any, v: Any, lengths: Any = None, **given: Any) -> tuple[Any, ...]:
        ends_q, ends_k, longest_q, longest_k = lengths or (None, None, q.shape[1], k.shape[1])
        pairs = [given.pop(name, None) for name in ("bias", "mask", "slopes")]
        scale, softcap, share = (given.pop(name, 0.0) for name in ("scale", "softcap", "dropout_p"))
        rng = torch.tensor([2**31 - 5, 2**31 - 7]) if share else None
        sides = (window | given).values()
        numbers = (longest_q, longest_k, scale or 0.3, *sides, softcap, share)
        return q, k, v, *pairs, ends_q, ends_k, rng, *numbers

    def made(
        queries: int, keys: int, heads: int = 2, key_heads: int = 2, size: int = 16, value_size: int = 16
    ) -> Any:
        batch = 2 if queries < 100 else 1
        q, k = (_random(batch, *shape, size, dtype=dtype) for shape in ((queries, heads), (keys, key_heads)))
        return q, k, _random(batch, keys, key_heads, value_size, dtype=dtype)

    yield call(*made(40, 150, 2, 1), right=0)
    mask = torch.rand(2, 1, 9, 70) > 0.6
    mask[1, 0, 2] = True  # a query without visible keys
    bias = _random(1, 4, 1, 70, dtype=dtype)
    slopes = torch.rand(2, 4)
    sizes = (16, 16) if dtype == torch.float32 else (24, 40)  # larger ones of float32 are refused
    yield call(*made(9, 70, 4, 2, *sizes), bias=bias, mask=mask, slopes=slopes, right=0, left=40, softcap=3.0,
               dropout_p=0.3)  # fmt: skip
    packed = _random(140, 3, 2, 18, dtype=dtype).transpose(0, 2).contiguous().transpose(0, 2)
    ends = torch.tensor([0, 3, 3, 138, 140], dtype=torch.int32)
    yield call(*packed.unbind(1), (ends, ends, 135, 135), right=0, slopes=slopes[0, 1:3], dropout_p=0.1)
    if dtype != torch.float32:
        return
    yield call(*made(300, 150), right=0)  # the first queries have no visible keys
    yield call(*made(300, 150), right=0, top_left=True)
    yield call(*made(200, 330), left=70, right=5)
    yield call(*made(200, 330, size=20), left=70, top_left=True, scale=-0.5)
    yield call(*made(3, 5), left=-3, right=2)
    yield call(*made(130, 1, size=1, value_size=130), dropout_p=1.0)
    yield call(*made(4, 0))
    q, k, v = _random(9, 4, 8, dtype=dtype), *(_random(74, 2, 8, dtype=dtype) for _ in range(2))
    lengths = torch.tensor([0, 4, 5, 9]), torch.tensor([0, 70, 70, 74]), 4, 70
    yield call(q, k, v, lengths, right=0, mask=torch.rand(3, 1, 1, 70) > 0.5)


def _attention_backward(dtype: torch.dtype) -> Calls:
    for query, key, value, *others in _attention(dtype):
        wide = [each.double() for each in (query, key, value)]
        out, lse = operators()["attention"].composite(*wide, *others)
        grad, lse = _random(*out.shape, dtype=dtype), lse.to(torch.promote_types(dtype, torch.float32))
        yield grad, query, key, value, out.to(dtype), lse, *others, False


def _paged_cache(dtype: torch.dtype, size: int, value_size: int, block: int = 7) -> tuple[Any, ...]:
    """Keys and values side by side, which a kernel reads where they lie; and the table of three sequences."""
    both = _random(13, block, 2, size + value_size, dtype=dtype)
    table = torch.full((3, 9), -1, dtype=torch.int32)
    for row, blocks in zip(table, ([3], [9, 1, 12, 0, 5, 7, 2], [4, 11, 6]), strict=True):
        row[: len(blocks)] = torch.tensor(blocks, dtype=torch.int32)
    unused = torch.tensor([8, 10])
    both[unused] = float("nan")
    return both[..., :size], both[..., size:], table


def _paged_attention(dtype: torch.dtype) -> Calls:
    def call(size: int, value_size: int, heads: int = 6, cache: Any = None, **given: Any) -> tuple[Any, ...]:
        found = _paged_cache(dtype, size, value_size)
        caches = (
            found[:2]
            if cache is None
            else [torch.randint(-90, 90, each.shape).to(cache) for each in found[:2]]
        )
        query = _random(14, heads, size, dtype=dtype)
        ends, keys = (torch.tensor(each, dtype=torch.int32) for each in ([0, 5, 6, 13], [5, 45, 20]))
        wide = torch.promote_types(dtype, torch.float32)
        out, lse = torch.zeros(14, heads, value_size, dtype=dtype), torch.zeros(heads, 14, dtype=wide)
        names = "slopes sinks key_scale value_scale out lse longest_q longest_k scale left right softcap"
        defaults = dict.fromkeys(names.split()) | {"out": out, "lse": lse, "longest_q": 7, "longest_k": 45}
        others = defaults | {"scale": 0.3, "right": 0, "softcap": 0.0} | given
        return query, *caches, found[2], ends, keys, *others.values()

    if dtype == torch.float64:  # the composite's
        return
    yield call(16, 24, slopes=torch.rand(3, 6), sinks=torch.randn(6), left=9)
    yield call(40, 40, 2, softcap=3.0, right=None, lse=None)
    scales = {"key_scale": torch.rand(2) / 60, "value_scale": torch.rand(1) / 60}
    yield call(16, 16, cache=torch.int8, **scales)
    if dtype == torch.float32:
        yield call(130, 20, slopes=torch.rand(6), left=4, right=3)
        yield call(1, 3, 2)


def _cache_write(dtype: torch.dtype) -> Calls:
    slots = torch.tensor([40, 3, -1, 17, 90, -7, 0, 55])
    key, value = (_random(9, 2, size, dtype=dtype) for size in (20, 9))
    yield key, value, *_paged_cache(dtype, 20, 9)[:2], slots, None, None
    yield key, value, *_paged_cache(dtype, 20, 9)[:2], slots.int()[1:5], None, None
    if dtype in (torch.float32, torch.bfloat16):
        caches = [torch.zeros(13, 7, 2, size, dtype=torch.int8) for size in (20, 9)]
        # Quotients that no dtype of the calculation rounds across the half of two integers.
        whole = [(each * 40).round() + 0.25 for each in (key.float(), value.float())]
        exact = [torch.where(each.abs() < 60, each, 0.25).to(dtype) for each in whole]
        yield *exact, *caches, slots, torch.tensor([0.5, 0.25]), torch.tensor([0.25])


def _adamw_(dtype: torch.dtype) -> Calls:
    if dtype == torch.float64:  # the composite's
        return
    shapes = ((3, 5), (1,), (0, 4), (20011,))

    def many(kind: torch.dtype, positive: bool = False) -> list[torch.Tensor]:
        made = [_random(*shape, dtype=kind) for shape in shapes]
        return [each.abs() for each in made] if positive else made

    def steps() -> list[torch.Tensor]:
        return [torch.tensor(float(i)) for i in (0, 7, 3, 100)]

    wide, numbers = torch.float32, (1e-2, 0.9, 0.999, 1e-6, 0.1, 0.5)
    norm, scale, found = torch.tensor(3.0), torch.tensor(4.0), torch.tensor(1.0)
    same = (many(dtype), many(dtype), many(dtype), many(dtype, True))
    yield *same, [], [], steps(), None, None, None, *numbers, True, False
    mixed = (many(dtype), many(dtype), many(wide), many(wide, True), many(wide, True), many(wide), steps())
    yield *mixed, norm, scale, found * 0, *numbers, False, True
    yield *same, [], [], steps(), norm, scale, found, *numbers, True, False
    odd = [torch.randn(20012)[1:].to(dtype)], [_random(20011, dtype=dtype)]
    states = [torch.zeros(20012)[1:]], [torch.zeros(20012)[1:]]
    yield *odd, *states, [], [], steps()[:1], norm / 100, None, None, *numbers, True, False


# The cases of each operator, by its name.
CASES = {
    name[1:]: each
    for name, each in [*globals().items()]
    if getattr(each, "__annotations__", {}).get("return") == Calls
}
CASES["rotary_"] = _rotary


def calls(name: str) -> Iterator[tuple[torch.dtype, tuple[Any, ...]]]:
    """The calls of an operator, with the dtype of its tensors."""
    torch.manual_seed(0)
    for dtype in DTYPES:
        for arguments in CASES[name](dtype):
            yield dtype, arguments


def check(name: str, every: int = 1) -> int:
    """Compare the operator's Triton kernel with its composite in float64; return the number of calls compared.

    Interpreted, the kernel computes on the CPU, else on the accelerator.

    Args:
        name: of the operator.
        every: one in so many calls is compared.
    """
    accelerator = torch.accelerator.current_accelerator()
    done, device = 0, "cpu" if is_interpreted() or accelerator is None else accelerator.type
    for dtype, arguments in itertools.islice(calls(name), 0, None, every):
        expected = _tensors(
            _results_and_arguments(operators()[name].composite, _map_tensors(arguments, _widen))
        )
        with ops.use(name, "triton"):
            got = _tensors(
                _results_and_arguments(
                    operators()[name], _map_tensors(arguments, lambda tensor: tensor.to(device))
                )
            )
        assert len(got) == len(expected)
        for index, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
            _close(f"{name} {dtype} call {done} tensor {index}", ours, theirs, dtype)
        done += 1
    return done


def _close(place: str, ours: Any, theirs: Any, dtype: torch.dtype) -> None:
    assert (ours is None) == (theirs is None), place
    if ours is None:
        return
    theirs = theirs.double()
    finite = theirs[theirs.isfinite()]
    limit = TOLERANCE[dtype] * max(1.0, finite.abs().max().item() if finite.numel() else 0.0)
    torch.testing.assert_close(
        ours.cpu().double(), theirs, rtol=0, atol=limit, equal_nan=True, msg=lambda m: f"{place}: {m}"
    )


def _results_and_arguments(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
    """Call the function; return its results and its arguments after the call."""
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


def _map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(_map_tensors(item, change) for item in value)
    return change(value) if isinstance(value, torch.Tensor) else value


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.float64 if tensor.is_floating_point() else tensor.dtype, copy=True)


def compile_for_hopper(name: str) -> set[str]:
    """Compile what the operator's calls launch for sm_90, launching nothing; the kernels' names and dtypes."""
    import importlib

    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile
    from triton.runtime.jit import JITFunction, mangle_type

    from isthmus.ops.triton import family

    done: set[str] = set()

    def kind(value: Any) -> Any:
        if isinstance(value, tuple):  # an int argument equal to 1 is specialised
            return tuple("i32" if each == 1 else mangle_type(each) for each in value)
        return mangle_type(value)

    def compiled(kernel: Any, *given: Any, grid: Any, warmup: bool, **named: Any) -> None:
        options = {key: named.pop(key) for key in ("num_warps", "num_stages") if key in named}
        values = dict(zip(kernel.arg_names, given, strict=False)) | named
        fixed = {each.name: values[each.name] for each in kernel.params if each.is_constexpr}
        fixed |= {key: None for key, value in values.items() if value is None}
        signature = {key: "constexpr" if key in fixed else kind(value) for key, value in values.items()}
        if (key := f"{kernel.fn.__name__} {signature} {fixed} {options}") in done:
            return
        source = ASTSource(kernel, signature, {(kernel.arg_names.index(k),): v for k, v in fixed.items()})
        made = compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        assert ".target sm_90" in made.asm["ptx"] and made.asm["cubin"]
        assert made.metadata.shared <= SHARED_MEMORY, f"{key} takes {made.metadata.shared} bytes"
        done.add(key)

    run, JITFunction.run = JITFunction.run, compiled
    try:
        launched = getattr(importlib.import_module(f"isthmus.ops.triton.{family(name)}"), name)
        seen: set[torch.dtype] = set()
        for dtype, arguments in calls(name):
            first = arguments[0][0] if isinstance(arguments[0], list) else arguments[0]
            if first.numel() and (dtype not in seen or dtype == torch.bfloat16):
                seen.add(dtype)
                launched(*arguments)
    finally:
        JITFunction.run = run
    return done


def report(examine: Callable[[str], Any], names: Iterable[str]) -> None:
    """Print as JSON the result, or the error, of the examination of each operator."""
    import json
    import traceback

    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = "" if examine(name) else "nothing was examined"
        except Exception:
            found[name] = traceback.format_exc()
    print(json.dumps(found))
