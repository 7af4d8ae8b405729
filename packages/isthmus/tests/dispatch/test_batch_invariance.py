"""Batch-invariant mode: rows with the same bits alone, in any batch, at any place of it, on any number of threads."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from isthmus import ops
from tests.helpers.children import output

pytestmark = pytest.mark.host("other drivers have no such mode")
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
ROWS, BATCHES = 200, 12
SHAPES = ((1, 1), (17, 5), (512, 96), (777, 130), (64, 1000), (1376, 33))

Rowwise = Callable[[Tensor], Tensor]


@pytest.fixture(autouse=True)
def mode() -> Iterator[None]:
    with torch.chip.batch_invariant():
        yield


def batches(rows: int, seed: int = 0) -> Iterator[list[int]]:
    """Yield indices of rows: each alone, and random batches in random order, some twice in one."""
    draw = random.Random(seed)
    yield from ([draw.randrange(rows)] for _ in range(4))
    for _ in range(BATCHES):
        yield draw.choices(range(rows), k=draw.randint(2, rows))


def same_bits(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and torch.equal(left.cpu(), right.cpu())


def check(call: Rowwise, x: Tensor, *, padded: bool = False) -> None:
    whole = call(x)
    assert torch.isfinite(whole.float()).all()
    for rows in batches(len(x)):
        index = torch.tensor(rows)
        part = x.cpu()[index].to("chip")
        assert same_bits(call(part), whole.cpu()[index]), rows


def drawn(*shape: int, dtype: torch.dtype, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to("chip")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("inner", "columns"), SHAPES)
def test_products_of_rows(inner: int, columns: int, dtype: torch.dtype) -> None:
    x, weight, bias = (
        drawn(ROWS, inner, dtype=dtype),
        drawn(columns, inner, dtype=dtype),
        drawn(columns, dtype=dtype),
    )
    other = weight.t().contiguous()
    check(lambda rows: F.linear(rows, weight, bias), x)
    whole = x @ weight.t()
    assert same_bits(x @ other, whole)  # the layout of the weight changes nothing
    assert same_bits(torch.mv(weight, x[7]), whole[7])  # nor does a row without its batch
    assert same_bits(x[7] @ other, whole[7])
    assert same_bits(torch.dot(x[7], weight[0]), whole[7, 0])
    assert same_bits(
        torch.bmm(x.view(8, 25, inner), other.expand(8, inner, columns)).view(ROWS, columns), whole
    )
    assert same_bits(x.view(8, 25, inner) @ weight.t(), whole.view(8, 25, columns))
    assert same_bits(torch.addmm(bias, x, other), F.linear(x, weight, bias))
    expected = x.cpu().double() @ weight.cpu().double().t()
    limit = {torch.float32: 1e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}[dtype]
    assert (whole.cpu().double() - expected).abs().max() <= limit * expected.abs().max()


@pytest.mark.parametrize("dtype", (*FLOATS, torch.float64), ids=str)
def test_forms_of_products(dtype: torch.dtype) -> None:
    a, b, c = drawn(5, 7, dtype=dtype), drawn(7, 3, dtype=dtype), drawn(5, 3, dtype=dtype)
    expected = torch.addmm(c, a, b, beta=0.5, alpha=2)
    torch.testing.assert_close(expected.cpu(), torch.addmm(c.cpu(), a.cpu(), b.cpu(), beta=0.5, alpha=2))
    assert same_bits(c.clone().addmm_(a, b, beta=0.5, alpha=2), expected)
    assert same_bits(
        torch.addmm(c, a, b, beta=0.5, alpha=2, out=torch.empty(0, dtype=dtype, device="chip")), expected
    )
    assert same_bits(torch.baddbmm(c[None], a[None], b[None], beta=0.5, alpha=2)[0], expected)
    nothing = torch.full_like(c, float("nan"))
    assert torch.isfinite(torch.addmm(nothing, a, b, beta=0)).all()
    assert torch.mm(a[:, :0], b[:0]).count_nonzero() == 0
    assert torch.mm(a[:0], b).shape == (0, 3)


def test_other_products_go_the_ordinary_route() -> None:
    whole = torch.arange(6, device="chip").view(2, 3)
    assert (whole @ whole.t()).tolist() == [[5, 14], [14, 50]]
    z = torch.ones(2, 2, dtype=torch.complex64, device="chip")
    assert (z @ z).tolist() == [[2, 2], [2, 2]]
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied|must match the size"):
        torch.mm(whole.float(), whole.float())
    with pytest.raises(RuntimeError, match="dtype"):
        torch.mm(whole.float(), whole.t().double())


ROW_OPERATORS: dict[str, Rowwise] = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(-1, keepdim=True),
    "prod": lambda x: (1 + x / 64).prod(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "norm": lambda x: x.norm(dim=-1),
    "var": lambda x: x.var(-1),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "softplus": F.softplus,
    "mish": F.mish,
    "elu": F.elu,
    "pow": lambda x: x.abs().pow(1.5),
    "rsqrt": lambda x: (x.abs() + 0.1).rsqrt(),
    "exp2": torch.exp2,
    "add": lambda x: torch.add(x, x.square(), alpha=0.3),
    "silu_": lambda x: F.silu(x.clone(), inplace=True),
    "sigmoid.out": lambda x: torch.sigmoid(x, out=torch.empty_like(x)),
    "ops.rms_norm": lambda x: ops.rms_norm(x, None),
    "ops.swiglu": lambda x: ops.swiglu(x, x),
    "ops.scaled_masked_softmax": lambda x: ops.scaled_masked_softmax(x[:, None, None], None, 0.5),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ROW_OPERATORS)
def test_operators_of_rows(name: str, dtype: torch.dtype) -> None:
    check(ROW_OPERATORS[name], drawn(37, 333, dtype=dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "softmax", "logsumexp", "rms_norm", "silu"])
def test_long_rows_are_not_divided_among_threads(name: str, dtype: torch.dtype) -> None:
    call, x = ROW_OPERATORS[name], drawn(5, 50_001, dtype=dtype)
    whole = call(x)
    for row in range(5):
        assert same_bits(call(x[row : row + 1]), whole[row : row + 1])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("features", [64, 80])
def test_attention_in_chunks_and_beside_longer_sequences(features: int, dtype: torch.dtype) -> None:
    tokens, heads, key_heads = 600, 4, 2
    q = drawn(3, tokens, heads, features, dtype=dtype)
    k, v = (drawn(3, tokens, key_heads, features, dtype=dtype, seed=seed) for seed in (2, 3))
    whole = ops.flash_attn_func(q, k, v, causal=True)
    for batch, first, last in (
        (0, 0, 1),
        (1, 0, 77),
        (2, 77, 130),
        (0, 130, 131),
        (1, 511, 513),
        (2, 599, 600),
    ):
        one = slice(batch, batch + 1)
        chunk = ops.flash_attn_func(q[one, first:last], k[one, :last], v[one, :last], causal=True)
        assert same_bits(chunk, whole[one, first:last])
    lengths = (77, 600, 1)
    ends = torch.tensor((0, 77, 677, 678), dtype=torch.int32, device="chip")
    packed = [torch.cat([each[i, :n] for i, n in enumerate(lengths)]) for each in (q, k, v)]
    varlen = ops.flash_attn_varlen_func(*packed, ends, ends, 600, 600, causal=True)
    assert same_bits(varlen, torch.cat([whole[i, :n] for i, n in enumerate(lengths)]))
    by_pytorch = F.scaled_dot_product_attention(
        *(each.transpose(1, 2) for each in (q, k, v)), is_causal=True, enable_gqa=True
    )
    assert same_bits(by_pytorch.transpose(1, 2), whole)


class Block(nn.Module):
    """A layer of a LLaMA with its output layer."""

    def __init__(self, size: int = 96, heads: int = 4, vocabulary: int = 501) -> None:
        super().__init__()
        self.heads = heads
        self.embedding = nn.Embedding(vocabulary, size)
        self.norms = nn.ModuleList(nn.RMSNorm(size) for _ in range(3))
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.gate, self.up, self.down = (
            nn.Linear(size, 3 * size),
            nn.Linear(size, 3 * size),
            nn.Linear(3 * size, size),
        )
        self.head = nn.Linear(size, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        parts = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2))
        y = self.norms[1](x)
        x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return self.head(self.norms[2](x)).log_softmax(-1)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@torch.no_grad()
def test_log_probabilities_of_a_model_do_not_depend_on_batch_and_padding(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = Block().to("chip", dtype)
    tokens = torch.randint(0, 501, (ROWS // 8, 45)).to("chip")
    whole = model(tokens)
    draw = random.Random(1)
    for rows in batches(len(tokens)):
        length = draw.randint(1, 45)
        assert same_bits(model(tokens[rows][:, :length]), whole[rows][:, :length])


def test_gradients_are_computed() -> None:
    torch.manual_seed(0)
    model = nn.Linear(33, 9)
    x = torch.randn(5, 33)
    model(x).square().sum().backward()
    expected = [each.grad for each in model.parameters()]
    model.zero_grad()
    model = model.to("chip")
    model(x.to("chip")).square().sum().backward()
    for parameter, grad in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), grad)


def test_the_mode_ends_with_its_block_and_shows_in_the_routes() -> None:
    x = drawn(4, 40, dtype=torch.float32)
    assert torch.chip.is_batch_invariant()
    assert torch.chip.routes()["aten::mm"] == ("decomposition", "rows with the same bits in every batch")
    with torch.chip.batch_invariant(False):
        assert not torch.chip.is_batch_invariant()
        assert torch.chip.routes()["aten::mm"][0] == "delegate"
        torch.chip.reset_dispatch_stats()
        assert same_bits(x @ x.t(), x.cpu() @ x.cpu().t())
        assert same_bits(F.silu(x[:, :33]), F.silu(x.cpu()[:, :33]))
        assert torch.chip.dispatch_stats()["operators"]["aten::mm"]["route"] == "delegate"
    torch.chip.reset_dispatch_stats()
    x @ x.t()
    operators = torch.chip.dispatch_stats()["operators"]
    assert operators["aten::mm"] == {"route": "decomposition", "calls": 1}
    assert operators["isthmus_cpu::invariant_products"] == {"route": "delegate", "calls": 1}


def test_products_are_captured() -> None:
    x, weight = drawn(5, 64, dtype=torch.float32), drawn(30, 64, dtype=torch.float32)
    graph = torch.chip.Graph()
    with torch.chip.graph(graph):
        captured = F.silu(F.linear(x, weight))
    x.copy_(drawn(5, 64, dtype=torch.float32, seed=9))
    graph.replay()
    assert same_bits(captured, F.silu(F.linear(x, weight)))


ALONE = """
import json, torch
from torch.nn import functional as F
g = torch.Generator().manual_seed(0)
found = []
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    x, w = (torch.randn(n, 517, generator=g).to(dtype).to("chip") for n in (70, 133))
    y = F.silu(F.linear(x, w)).softmax(-1)
    found += [torch.chip.is_batch_invariant(), y.cpu().view(torch.uint8).to(torch.int64).mul(
        torch.arange(y.numel() * y.element_size()).view(y.shape[0], -1) % 8191 + 1).sum().item()]
print(json.dumps(found))
"""


def test_the_option_and_any_number_of_threads() -> None:
    one, two = (
        json.loads(output(ALONE, ISTHMUS_DRIVER="host", ISTHMUS_BATCH_INVARIANT="1", OMP_NUM_THREADS=threads))
        for threads in ("1", "2")
    )
    assert one == two and one[::2] == [True] * 3


def test_a_driver_without_the_mode_refuses_it() -> None:
    code = """
        import torch
        try:
            torch.chip.set_batch_invariant(True)
        except RuntimeError as error:
            print(error)
    """
    printed = output(code, ISTHMUS_DRIVER="numpy")
    assert printed.startswith(
        "driver numpy: its operators are not batch-invariant; a driver whose rows do not depend"
    )
