"""Operators that take a scalar, on the NPU against the CPU: dtypes of tensors by types of scalars.

Usage: isthmus ascend run scalar_jobs.py [EVERY]

Prints the differences, then the numbers of operators and calls. A call that the CPU refuses is not compared.
"""

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch_npu  # noqa: F401
from torch.nn import functional

Operator = Callable[[torch.Tensor, Any], torch.Tensor]
DTYPES = (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.float16, torch.bfloat16,
    torch.float32,
)  # fmt: skip
SCALARS = (1, 2, -3, 0, 1.5, -0.5, 2.0, True, False, 300)
TOLERANCES = {2: 1e-2, 4: 1e-5, 8: 1e-6}  # relative, by bytes
# Differences of torch_npu itself: it has no float64; it gives a shift of bool the dtype bool; it makes a tensor
# of x's dtype of a value that is searched for; subtraction of lists takes four dtypes; ldexp() is a product with a
# power in float32.
OF_TORCH_NPU = ("float_power", "lshift", "rshift", "searchsorted", "foreach_sub", "ldexp")


def _assigned(tensor: torch.Tensor, value: Any) -> torch.Tensor:
    result = tensor.clone()
    result[1:3] = value
    return result


# Operators of x and s; of torch.nn.functional; in place; of x and a tensor of s; of a list of x and s.
OF_TORCH = (
    "clamp_min clamp_max add sub rsub mul div floor_divide remainder fmod pow float_power eq ne lt le gt "
    "ge full_like bitwise_and bitwise_or bitwise_xor xlogy isin norm copysign nan_to_num"
).split()
OF_FUNCTIONAL = "leaky_relu elu celu softplus hardshrink softshrink".split()
IN_PLACE = (
    "clamp_min_ clamp_max_ add_ sub_ mul_ div_ pow_ remainder_ fmod_ floor_divide_ eq_ lt_ ge_ fill_".split()
)
OF_TENSORS = "maximum minimum logical_and atan2 fmax ldexp".split()
OF_LISTS = (
    "foreach_add foreach_mul foreach_sub foreach_div foreach_pow foreach_maximum foreach_clamp_min "
    "foreach_clamp_max"
).split()
OPERATORS: dict[str, Operator] = {
    **{name: getattr(torch, name) for name in OF_TORCH},
    **{name: getattr(functional, name) for name in OF_FUNCTIONAL},
    **{name: lambda t, s, n=name: getattr(t.clone(), n)(s) for name in IN_PLACE},
    **{
        name: lambda t, s, n=name: getattr(torch, n)(t, torch.tensor(s, device=t.device))
        for name in OF_TENSORS
    },
    **{name: lambda t, s, n=name: getattr(torch, f"_{n}")([t, t], s)[0] for name in OF_LISTS},
    "clamp_min_kw": lambda t, s: t.clamp(min=s),
    "clamp_max_kw": lambda t, s: t.clamp(max=s),
    "clamp2": lambda t, s: t.clamp(0, s),
    "clamp2b": lambda t, s: t.clamp(s, 2.5),
    "clip": lambda t, s: t.clip(s),
    "clamp_t": lambda t, s: t.clamp(min=torch.tensor(s, device=t.device)),
    "clamp_tmax": lambda t, s: t.clamp(max=torch.tensor(s, device=t.device)),
    "clamp_t1": lambda t, s: t.clamp(torch.tensor([s], device=t.device), torch.tensor([3], device=t.device)),
    "clamp_min_t": lambda t, s: torch.clamp_min(t, torch.tensor(s, device=t.device)),
    "clamp_max_t": lambda t, s: torch.clamp_max(t, torch.tensor([s], device=t.device)),
    "clamp_": lambda t, s: t.clone().clamp_(0, s),
    "radd": lambda t, s: s + t,
    "rsubop": lambda t, s: s - t,
    "rdiv": lambda t, s: s / t,
    "div_trunc": lambda t, s: torch.div(t, s, rounding_mode="trunc"),
    "div_floor": lambda t, s: torch.div(t, s, rounding_mode="floor"),
    "rfloordiv": lambda t, s: s // t,
    "rremainder": lambda t, s: s % t,
    "rpow": lambda t, s: torch.pow(s, t),
    "add_alpha": lambda t, s: torch.add(t, t, alpha=s),
    "sub_alpha": lambda t, s: torch.sub(t, t, alpha=s),
    "rsub_alpha": lambda t, s: torch.rsub(t, t, alpha=s),
    "where_s1": lambda t, s: torch.where(t > 1, t, s),
    "where_s2": lambda t, s: torch.where(t > 1, s, t),
    "where_ss": lambda t, s: torch.where(t > 1, s, 2),
    "masked_fill": lambda t, s: t.masked_fill(t > 1, s),
    "masked_fill_t": lambda t, s: t.masked_fill(t > 1, torch.tensor(s, device=t.device)),
    "new_full": lambda t, s: t.new_full((2,), s),
    "index_fill": lambda t, s: t.index_fill(0, torch.tensor([1], device=t.device), s),
    "scatter": lambda t, s: t.scatter(0, torch.tensor([1], device=t.device), s),
    "setitem": _assigned,
    "lerp": lambda t, s: torch.lerp(t, t + 1, s),
    "addcmul": lambda t, s: torch.addcmul(t, t, t, value=s),
    "addcdiv": lambda t, s: torch.addcdiv(t, t, t, value=s),
    "threshold": lambda t, s: functional.threshold(t, s, 2),
    "threshold_v": lambda t, s: functional.threshold(t, 1, s),
    "hardtanh": lambda t, s: functional.hardtanh(t, -1, s),
    "lshift": lambda t, s: t << s,
    "rshift": lambda t, s: t >> s,
    "rxlogy": lambda t, s: torch.xlogy(s, t),
    "pad": lambda t, s: functional.pad(t, (1, 1), value=s),
    "cumsum": lambda t, s: t.cumsum(0),
    "renorm": lambda t, s: torch.renorm(t[None], s, 0, 1.0),
    "addr": lambda t, s: torch.addr(torch.outer(t, t), t, t, beta=s, alpha=s),
    "index_add": lambda t, s: t.index_add(0, torch.tensor([0, 1], device=t.device), t[:2], alpha=s),
    "histc": lambda t, s: torch.histc(t, 4, 0, s),
    "bucketize": lambda t, s: torch.bucketize(torch.tensor(s, device=t.device), t.sort()[0]),
    "searchsorted": lambda t, s: torch.searchsorted(t.sort()[0], s),
    "foreach_add_l": lambda t, s: torch._foreach_add([t, t], [s, s])[0],
    "foreach_mul_l": lambda t, s: torch._foreach_mul([t, t], [s, 1])[0],
    "foreach_div_l": lambda t, s: torch._foreach_div([t, t], [s, s])[0],
    "foreach_lerp": lambda t, s: torch._foreach_lerp([t, t], [t, t], s)[0],
    "foreach_addcmul": lambda t, s: torch._foreach_addcmul([t], [t], [t], s)[0],
    "foreach_addcdiv": lambda t, s: torch._foreach_addcdiv([t], [t], [t], s)[0],
    "arange": lambda t, s: torch.arange(0, s, 1, dtype=t.dtype, device=t.device),
    "full": lambda t, s: torch.full((2,), s, dtype=t.dtype, device=t.device),
    "linspace": lambda t, s: torch.linspace(0, s, 5, dtype=t.dtype, device=t.device),
    "fill_diag": lambda t, s: torch.outer(t, t).fill_diagonal_(s),
    "masked_fill_": lambda t, s: t.clone().masked_fill_(t > 1, s),
    "index_put": lambda t, s: t.index_put(
        (torch.tensor([1], device=t.device),), torch.tensor(s, device=t.device, dtype=t.dtype)
    ),
}


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether dtypes, shapes and values are equal; floats within their tolerance."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    tolerance = TOLERANCES[one.itemsize]
    return torch.allclose(one.double(), other.double(), rtol=tolerance, atol=1e-6, equal_nan=True)


def difference(operator: Operator, dtype: torch.dtype, scalar: Any) -> str | None:
    """Return what the CPU and the NPU give if that differs, else None."""
    tensor = torch.tensor([0, 1, 2, 5, 3, 7]).to(dtype)
    try:
        expected = operator(tensor, scalar)
    except (RuntimeError, TypeError, ValueError, ZeroDivisionError):
        return None
    try:
        result = operator(tensor.npu(), scalar).cpu()
    except RuntimeError as error:
        return f"{expected.dtype} {expected.tolist()}, NPU {str(error).splitlines()[-1]}"
    if equal(expected, result):
        return None
    return f"{expected.dtype} {expected.tolist()}, NPU {result.dtype} {result.tolist()}"


def main() -> None:
    """Compare one call in EVERY; of clamp(), whose dtype depends on its bounds, every call."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    every = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    cases = [(n, d, s) for n in OPERATORS if n not in OF_TORCH_NPU for d in DTYPES for s in SCALARS]
    chosen = [case for i, case in enumerate(cases) if i % every == 0 or "clamp" in case[0]]
    for name, dtype, scalar in chosen:
        found = difference(OPERATORS[name], dtype, scalar)
        if found is not None:
            print(f"{name}({dtype}, {scalar!r}): CPU {found}")
    print(f"{len({name for name, *_ in cases})} operators, {len(chosen)} calls")


if __name__ == "__main__":
    main()
