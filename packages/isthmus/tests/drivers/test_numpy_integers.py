"""Integers on the numpy chip are exact: values beyond 2^53, dtypes of out=, ends and factors with fractions."""

from __future__ import annotations

import json

import pytest

from tests.helpers.children import output

COMPARED = """
import json, warnings, torch
import torch.nn.functional as F

warnings.simplefilter("ignore")
big, t = 2**53 + 1, torch.tensor


def out(dtype, *shape):
    return torch.empty(shape, dtype=dtype)


x = t([big, -big, 3, 2**62 + 1, -7])
halves = t([0.75, 0.75, -1.75, 2.5])
cells = t([[big, 2], [5, -big]])
image = torch.arange(-18, 18).view(1, 1, 6, 6) * (2**54 + 1)
places = t([0, 1, 0, 1, 0])
zeros = out(torch.int64, 2).zero_()
CALLS = {CALLS}
found = {}
for name, (function, arguments) in CALLS.items():
    results = []
    for device in ("cpu", "chip"):
        moved = [a.to(device) if isinstance(a, torch.Tensor) else a for a in arguments]
        result = function(device, *moved).cpu()
        results.append([str(result.dtype), list(result.shape), result.tolist()])
    found[name] = "equal" if results[0] == results[1] else results
print(json.dumps(found))
"""
INTEGERS = """
    **{f"scatter_reduce {r} {own}": (lambda d, z, i, s, r=r, own=own: z.scatter_reduce(0, i, s, r, include_self=own),
                                     (zeros - 5, places, x))
       for r in ("sum", "prod", "amax", "amin", "mean") for own in (True, False)},
    "scatter_reduce of uint8": (lambda d, z, i, s: z.scatter_reduce(0, i, s, "mean"),
                                (zeros.to(torch.uint8) + 250, places, t([9, 8, 200, 100, 77], dtype=torch.uint8))),
    "scatter_add": (lambda d, z, i, s: z.scatter_add(0, i, s), (zeros, places, x)),
    "index_add with alpha": (lambda d, z, i, s: z.index_add(0, i, s, alpha=3), (zeros, places, x)),
    **{f"linspace {a} {b} {n}": (lambda d, a=a, b=b, n=n: torch.linspace(a, b, n, dtype=torch.int64, device=d), ())
       for a, b, n in ((0.5, -3.7, 7), (-9.9, 9.9, 8), (2.9, 2.1, 3), (7.7, 1, 1), (0, 2**52, 5))},
    **{f"arange {a} {b} {c}": (lambda d, a=a, b=b, c=c: torch.arange(a, b, c, dtype=torch.int64, device=d), ())
       for a, b, c in ((2.1, -2.9, -1.0), (-2.9, 3.7, 1.6), (big, big + 9, 2))},
    **{f"baddbmm {b} {a}": (lambda d, m, b=b, a=a: torch.baddbmm(m[None], m[None], m[None], beta=b, alpha=a),
                              (cells,))
       for b, a in ((0.6, 1), (1.9, 2.9), (-2.5, 3), (0, 1))},
    "addmm": (lambda d, m: torch.addmm(m[0], m, m, beta=3, alpha=-1), (cells,)),
    "pow": (lambda d, x: x**3, (x,)),
    "pow of negative exponents": (lambda d, x: torch.pow(t([1, -1, 2, -1, 1]).to(d), x),
                                  (t([-3, -3, 1, -(2**63), 2]),)),
    "round": (lambda d, x: x.round(), (x,)),
    "conv2d": (lambda d, x, w: F.conv2d(x, w, stride=2, padding=1), (image, cells.view(1, 1, 2, 2))),
    "max_pool2d": (lambda d, x: F.max_pool2d(x, 2, 1, 1), (image,)),
    "avg_pool2d": (lambda d, x: F.avg_pool2d(x, 3, 2, 1), (image // 2**50,)),
    "remainder and floor_divide": (lambda d, x: torch.stack([x % -5, x // 7, x.fmod(11)]), (x,)),
    "sum to float": (lambda d, x: x.sum(dtype=torch.float32), (t([2**62, 2**62, 2**62]),)),
"""
OUT = """
    **{f"{f.__name__} {dtype}": (lambda d, x, o, f=f: f(x, 0, out=o), (halves, out(dtype, *shape)))
       for f, shape in ((torch.cumsum, (4,)), (torch.cumprod, (4,)), (torch.sum, ()), (torch.prod, ()))
       for dtype in (torch.int32, torch.int64, torch.int8, torch.float64, torch.float16)},
    "cumsum with dtype": (lambda d, x: torch.cumsum(x, 0, dtype=torch.int64), (halves,)),
    "cumprod with dtype": (lambda d, x: torch.cumprod(x, 0, dtype=torch.int16), (halves,)),
    "sum with dtype": (lambda d, x: x.sum(dtype=torch.int32), (halves,)),
    "prod with dtype": (lambda d, x: x.prod(0, dtype=torch.int64), (halves,)),
    "sum of integers": (lambda d, x, o: torch.sum(x, 0, out=o), (x, out(torch.int32))),
    "mean of integers": (lambda d, x: x.mean(dtype=torch.float64), (t([1, 2, 4]),)),
    "greatest into another dtype": (lambda d, x, o: torch.max(x, out=o), (t([1, 4]), out(torch.float32))),
"""
VALID = """
    "padding valid": (lambda d, x: torch.nn.functional.conv2d(x, x[:, :, :2, :2], padding="valid"), (image,)),
    **{f"convolution of {n} dimensions": (lambda d, x, w: torch.ops.aten.convolution(x, w, None, [2], [1], [1], False,
                                                                                   [0], 1),
                                           (torch.ones(1, 2, *[5] * n), torch.ones(2, 2, *[3] * n)))
       for n in (1, 2, 3)},
    "transposed convolution": (lambda d, x, w: torch.ops.aten.convolution(x, w, None, [2], [1], [1], True, [1], 1),
                               (torch.ones(1, 2, 4, 5), torch.ones(2, 3, 3, 2))),
    "avg_pool2d": (lambda d, x: torch.ops.aten.avg_pool2d(x, [2], [1], [1]), (halves.view(1, 2, 2),)),
    "avg_pool3d": (lambda d, x: torch.ops.aten.avg_pool3d(x, [2]), (torch.arange(8.0).view(1, 2, 2, 2),)),
    "max_pool2d": (lambda d, x: torch.ops.aten.max_pool2d_with_indices(x, [2], [1], [1])[1], (halves.view(1, 2, 2),)),
    "gather of a number": (lambda d, x, i: x[0].gather(0, i), (halves, t([0, 0]))),
    "gather of a number by a number": (lambda d, x, i: x[1].gather(0, i[0]), (halves, t([0]))),
    "gather by a number": (lambda d, x, i: x.gather(0, i[1]), (halves, t([0, 2]))),
    "scatter to a number": (lambda d, x, i: x[0].scatter(0, i, x[2:3]), (halves, t([0]))),
    "scatter_add to a number": (lambda d, x, i: x[0].scatter_add(-1, i, x), (halves, t([0, 0, 0, 0]))),
    "scatter_reduce of a number": (lambda d, x, i: x[0].scatter_reduce(0, i, x[1], "amax"), (halves, t(0))),
    "index_select of a number": (lambda d, x, i: x[2].index_select(0, i), (halves, t([0]))),
    "index_copy of a number": (lambda d, x, i: x[2].index_copy(0, i, x[:1]), (halves, t([0]))),
    "cumsum of a number": (lambda d, x: x[2].cumsum(0), (halves,)),
"""
GRADIENTS = """
import torch

for rank, stride, padding, extra, dilation in (
    (2, (3, 2), (1, 2), (2, 3), (4, 4)), (1, (2,), (0,), (1,), (1,)), (3, (2, 2, 3), (1, 0, 1), (1, 0, 2), (1, 2, 1))
):
    gradients = []
    for device in ("cpu", "chip"):
        torch.manual_seed(0)
        x = torch.randn(2, 2, *[4] * rank, dtype=torch.float64).to(device).requires_grad_()
        w = torch.randn(2, 2, *[3] * rank, dtype=torch.float64).to(device).requires_grad_()
        convolution = getattr(torch.nn.functional, f"conv_transpose{rank}d")
        convolution(x, w, None, stride, padding, extra, 2, dilation).square().sum().backward()
        gradients.append([x.grad.cpu(), w.grad.cpu()])
    print(all(torch.allclose(a, b) for a, b in zip(*gradients)))
"""


@pytest.mark.parametrize("calls", [INTEGERS, OUT, VALID], ids=["integers", "out", "valid"])
def test_results_are_those_of_the_cpu(calls: str) -> None:
    found = json.loads(output(COMPARED.replace("CALLS}", calls + "}"), ISTHMUS_DRIVER="numpy"))
    assert {name: text for name, text in found.items() if text != "equal"} == {}


def test_gradients_of_transposed_convolutions_with_output_padding() -> None:
    assert output(GRADIENTS, ISTHMUS_DRIVER="numpy").split() == ["True"] * 3
