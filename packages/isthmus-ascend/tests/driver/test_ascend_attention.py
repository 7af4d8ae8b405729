"""Attention on the driver of Ascend NPUs: which calls the vendor's function computes, and what it then gives."""

from __future__ import annotations

from isthmus_ascend.environment import variables
from tests.driver.test_ascend_driver import DRIVER
from tests.helpers.children import run

JOB = """if True:
    import itertools, torch
    from isthmus.ops.attention import attend

    torch.manual_seed(0)

    def expected(query, key, value, bias=None, mask=None, left=None, right=None):
        queries, keys = query.shape[-3], key.shape[-3]
        place = torch.arange(queries)[:, None] + keys - queries - torch.arange(keys)
        hidden = (place > (queries + keys if left is None else left)) | (-place > (keys if right is None else right))
        hidden = hidden if mask is None else hidden | mask
        added = torch.zeros(hidden.shape).masked_fill(hidden, float("-inf")) + (0 if bias is None else bias)
        groups = query.shape[-2] // key.shape[-2]
        repeated = [query, *(each.repeat_interleave(groups, -2) for each in (key, value))]
        by_head = [each.transpose(-3, -2) for each in repeated]
        return torch.nn.functional.scaled_dot_product_attention(*by_head, attn_mask=added).transpose(-3, -2)

    def leaves(*shapes):
        on_host = [torch.randn(shape, requires_grad=True) for shape in shapes]
        return on_host, [each.detach().to("chip").requires_grad_() for each in on_host]

    def agree(got, want, on_chip, on_host):
        grad = torch.randn_like(want)
        want.backward(grad)
        got.backward(grad.to("chip"))
        for one, other in zip([got, *(x.grad for x in on_chip)], [want, *(x.grad for x in on_host)]):
            torch.testing.assert_close(one.cpu(), other, rtol=1e-5, atol=1e-5)

    def batched(bias=None, mask=None, **window):
        host, chip = leaves((2, 6, 4, 8), (2, 9, 2, 8), (2, 9, 2, 8), *([bias] if bias else []))
        hidden = None if mask is None else torch.rand(mask) < 0.3
        terms = {} if hidden is None else {"mask": hidden.to("chip")}
        got, _ = attend(*chip[:3], bias=chip[3] if bias else None, **terms, **window)
        agree(got, expected(*host, mask=hidden, **window), chip, host)

    def packed(ends, key_ends, **window):
        host, chip = leaves((ends[-1], 4, 8), (key_ends[-1], 2, 8), (key_ends[-1], 2, 8))
        lengths = [torch.tensor(each, device="chip", dtype=torch.int32) for each in (ends, key_ends)]
        got, _ = attend(*chip, lengths=(*lengths, 16, 16), **window)
        pairs = zip(itertools.pairwise(ends), itertools.pairwise(key_ends))
        parts = [[host[0][a:b], *(x[c:d] for x in host[1:])] for (a, b), (c, d) in pairs]
        agree(got, torch.cat([expected(*part, **window) for part in parts]), chip, host)

    for call in CALLS:
        torch.chip.reset_dispatch_stats()
        eval(call)
        served = torch.chip.dispatch_stats()["operators"]
        if "aten::_softmax" in served or "aten::exp" in served:
            print("by its composite:", call)
"""
PACKED = "packed([0, 4, 4, 9], [0, 6, 8, 14], {})"
CALLS = [
    *(PACKED.format(window) for window in ("", "right=0", "left=2, right=0", "left=3, right=1")),
    "batched(left=3, right=1)",
    "batched(bias=(2, 4, 6, 9))",
    "batched(bias=(1, 4, 1, 9), right=2)",
    "batched(bias=(2, 1, 6, 1), mask=(2, 1, 1, 9))",
    "batched(mask=(1, 4, 6, 9), right=3)",
]


def test_the_vendors_function_computes_it() -> None:
    done = run(JOB.replace("CALLS", repr(CALLS)), **variables() | DRIVER)
    assert (done.stdout, done.returncode) == ("", 0), done.stdout + done.stderr
