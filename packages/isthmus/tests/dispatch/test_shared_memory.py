"""Tensors of one call that share memory, on a chip with kernels of its own: results and errors are the CPU's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from isthmus.opset import operators, schema_of
from isthmus.opset.refusals import NONE, OVERLAPS, SAME
from tests.helpers.children import output

HEAD = """
import json, sys, warnings, torch
import torch.nn.functional as F
warnings.simplefilter("ignore")
def result(call, device, captured=False):
    torch.manual_seed(0)
    base = torch.arange(1.0, 13, device=device)
    square = (torch.arange(16.0, device=device) + 1).view(4, 4)
    try:
        if not captured:
            call(base, square)
        else:
            graph = torch.chip.Graph()
            with torch.chip.graph(graph):
                call(base, square)
            graph.replay()
            torch.accelerator.synchronize()
        return [base.tolist(), square.tolist()]
    except Exception as error:
        return str(error).splitlines()[0]
def optimize(base, kind, **options):
    p = base.detach().requires_grad_()
    p.grad = torch.ones_like(p)
    kind([p, p], lr=0.5, **options).step()
def clip(base):
    p = base.detach().requires_grad_()
    p.grad = torch.full_like(p, 3.0)
    torch.nn.utils.clip_grad_norm_([p, p], 1.0, foreach=True)
    base.copy_(p.grad)
"""

LISTS = """
    "one tensor twice": lambda x, s: torch._foreach_add_([x, x], 1),
    "a view that begins later": lambda x, s: torch._foreach_mul_([x, x[1:]], 2.0),
    "a tensor and its transpose": lambda x, s: torch._foreach_mul_([s, s.t()], [2.0, 3.0]),
    "overlapping windows": lambda x, s: torch._foreach_add_([x[:5], x[3:9], x[8:]], [x[:5], x[3:9], x[8:]]),
    "an entry is read by another": lambda x, s: torch._foreach_add_([x[:6], x[6:]], [x[6:], x[:6]], alpha=2),
    "a number that an entry writes": lambda x, s: torch._foreach_mul_([x[1:2], x[2:]], x[1]),
    "rows and columns": lambda x, s: torch._foreach_sqrt_([s[0], s[:, 0], s[0]]),
    "reinterpreted elements": lambda x, s: torch._foreach_neg_([x, x.view(torch.int32).view(torch.float32)]),
    "addcmul": lambda x, s: torch._foreach_addcmul_([x, x], [x, x], [x, x], value=0.5),
    "addcdiv": lambda x, s: torch._foreach_addcdiv_([s, s.t()], [s.t(), s], [s + 1, s + 2], [2.0, 0.5]),
    "lerp": lambda x, s: torch._foreach_lerp_([x[:6], x[3:9]], [x[6:], x[6:]], 0.25),
    "maximum": lambda x, s: torch._foreach_maximum_([x[:6], x[6:]], [x[6:], x[:6]]),
    "copies": lambda x, s: torch._foreach_copy_([x[:4], x[4:8], x[8:]], [x[4:8], x[:4], x[:4]]),
    "zeros": lambda x, s: torch._foreach_zero_([x[:6], x[3:9]]),
    "zeros of an expanded tensor": lambda x, s: torch._foreach_zero_([x[:1].expand(3)]),
    "SGD": lambda x, s: optimize(x, torch.optim.SGD, foreach=True),
    "SGD with momentum": lambda x, s: optimize(x, torch.optim.SGD, momentum=0.9, foreach=True),
    "Adagrad": lambda x, s: optimize(x, torch.optim.Adagrad, foreach=True),
    "fused SGD": lambda x, s: optimize(x, torch.optim.SGD, fused=True),
    "clip_grad_norm_": lambda x, s: clip(x),
    "no overlap": lambda x, s: torch._foreach_add_([x[:6], x[6:], s[0], s[1]], [s[2, 0], s[2, 1], s[3], s[2]]),
    "the same place of two lists": lambda x, s: torch._foreach_mul_([x, s], [x, s]),
    "an expanded tensor": lambda x, s: torch._foreach_add_([x[:1].expand(3)], 1),
    "expanded copies": lambda x, s: torch._foreach_copy_([x[:1].expand(3), x], [x[:3], x]),
    "partly the other list": lambda x, s: torch._foreach_add_([x[1:]], [x[:-1]]),
    "partly the other list later": lambda x, s: torch._foreach_sub_([s[0], s[1:]], [s[0], s[:-1]]),
"""
REFUSED_LISTS = 7

OVERLAPPING = """
    "index_add_": lambda x, s: x.index_add_(0, i, x),
    "index_add_ of a part": lambda x, s: x[1:].index_add_(0, i[:11], x[:-1]),
    "index_add into out": lambda x, s: torch.index_add(x, 0, i, s.view(-1)[:12], out=s.view(-1)[1:13]),
    "scatter_": lambda x, s: x.scatter_(0, i, x),
    "scatter_ of a part": lambda x, s: x[1:].scatter_(0, i[:5], x[:-1]),
    "scatter_add_": lambda x, s: x.scatter_add_(0, i, x),
    "scatter_reduce_": lambda x, s: x.scatter_reduce_(0, i, x, "sum"),
    "index_copy_": lambda x, s: x.index_copy_(0, i, x),
    "gather": lambda x, s: torch.gather(x, 0, i, out=x),
    "gather of a part": lambda x, s: torch.gather(x[:-1], 0, i[:11], out=x[1:]),
    "index_select": lambda x, s: torch.index_select(x, 0, i, out=x),
    "index": lambda x, s: torch.ops.aten.index.Tensor_out(x, [i], out=x),
    "index_put_": lambda x, s: x.index_put_((i,), x),
    "index_put_ of its own index": lambda x, s: i.index_put_((i,), i[0]),
    "cumsum": lambda x, s: torch.cumsum(x[:-1], 0, out=x[1:]),
    "copy_": lambda x, s: x[1:].copy_(x[:-1]),
    "copy_ of a row": lambda x, s: s.copy_(s[0]),
    "copy_ of the transpose": lambda x, s: s.copy_(s.t()),
    "cat": lambda x, s: torch.cat([x], out=x),
    "cat of parts": lambda x, s: torch.cat([x[:3], x[3:6]], out=x[2:8]),
    "stack": lambda x, s: torch.stack([x[:4], x[4:8]], out=x[:8].view(2, 4)),
    "masked_fill_ of an expanded tensor": lambda x, s: x[:4].expand(4, 4).masked_fill_(s < 6, 2),
    "index_put_ of an expanded tensor": lambda x, s: x[:4].expand(4, 4).__setitem__(s < 3, 7.0),
    "index_put_ of an expanded row": lambda x, s: x[:4].expand(4, 4).index_put_((i[:1],), s[1, 1]),
    "masked_scatter_ of an expanded tensor": lambda x, s: x[:4].expand(4, 4).masked_scatter_(s < 3, s),
    "sort": lambda x, s: torch.sort(x[1:], out=(x[:-1], torch.empty(0, dtype=torch.long, device=x.device))),
    "mse_loss": lambda x, s: torch.ops.aten.mse_loss.out(x[:-1], x[:-1], 0, out=x[1:]),
    "add": lambda x, s: torch.add(x[:-1], 1, out=x[1:]),
    "where": lambda x, s: torch.where(x[1:] > 3, x[:-1], x[:-1], out=x[1:]),
    "masked_fill_": lambda x, s: x.view(torch.bool)[:12].masked_fill_(x.view(torch.bool)[1:13], 1),
    "normal_": lambda x, s: x[:1].expand(3).normal_(),
    "random_": lambda x, s: x[:1].expand(3).random_(0, 5),
    "addmm": lambda x, s: torch.addmm(s[:3, :3], s[:3, :3], s[:3, :3], out=x[:9].view(3, 3)),
    "add over its operand": lambda x, s: torch.add(x, x, out=x),
    "scatter over its operand": lambda x, s: torch.scatter(x, 0, i[:2], 5.0, out=x),
"""

RUN = """
def results(captured):
    found = {}
    for name, make in CALLS.items():
        found[name] = [result(make, "chip", captured), result(make, "cpu")]
    return found
"""
EAGER = RUN + "print(json.dumps(results(False)))"
CAPTURED = RUN + "print(json.dumps(results(True)))"


def run(calls: str, code: str, **others: str) -> dict[str, list[Any]]:
    made = f"{HEAD}\nCALLS = {{{calls}}}\n{code}"
    found: dict[str, list[Any]] = json.loads(output(made, ISTHMUS_DRIVER="numpy", **others).splitlines()[-1])
    return found


@pytest.fixture(scope="module", params=["eager", "captured"])
def lists(request: pytest.FixtureRequest) -> dict[str, list[Any]]:
    return run(LISTS, EAGER if request.param == "eager" else CAPTURED)


def test_lists_whose_entries_share_memory_are_written_one_after_another(lists: dict[str, list[Any]]) -> None:
    different = {name: (chip, cpu) for name, (chip, cpu) in lists.items() if chip != cpu}
    assert not different
    refused = [name for name, (chip, _) in lists.items() if isinstance(chip, str)]
    assert len(refused) == REFUSED_LISTS and all(
        "unsupported operation" in lists[name][0] for name in refused
    )


def test_lists_without_shared_memory_are_one_kernel_call() -> None:
    code = """
    import torch
    x, y = torch.ones(3, device="chip"), torch.ones(4, 2, device="chip")
    def calls(function):
        torch.chip.reset_dispatch_stats()
        function()
        found = torch.chip.dispatch_stats()["operators"]
        return sum(row["calls"] for name, row in found.items() if "foreach" in name)
    print(calls(lambda: torch._foreach_add_([x, y], [x, y])), calls(lambda: torch._foreach_add_([x, x], 1)))
    """
    assert output(code, ISTHMUS_DRIVER="numpy").split() == ["1", "3"]


def test_operators_refuse_the_overlaps_that_the_cpu_refuses() -> None:
    code = """
def again(call, device):
    global i
    i = torch.arange(12, device=device)
    return result(call, device)
print(json.dumps({name: [again(call, "chip"), again(call, "cpu")] for name, call in CALLS.items()}))
"""
    found = run(OVERLAPPING, code)
    assert not {name: (chip, cpu) for name, (chip, cpu) in found.items() if chip != cpu}
    assert sum(isinstance(chip, str) and "unsupported" in chip for chip, _ in found.values()) > 25


@pytest.mark.parametrize("name", OVERLAPS)
def test_rules_of_overlaps_name_arguments(name: str) -> None:
    assert name in operators()
    arguments = {each.name for each in schema_of(name).inputs if each.is_tensor}
    assert OVERLAPS[name].keys() <= arguments and {*OVERLAPS[name].values()} <= {SAME, NONE}
