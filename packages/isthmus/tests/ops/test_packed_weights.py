"""Linear layers with packed weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from isthmus import ops
from isthmus.ops.packed_weights import PackedLinear, why_not_packed

pytestmark = pytest.mark.host("weights are packed where the CPU addresses the device's memory")
# bfloat16 where the processor's library multiplies it.
DTYPES = [
    each for each in (torch.float32, torch.bfloat16) if not why_not_packed(torch.ones(1, 1, dtype=each))
]
LIMIT = {torch.float32: (1e-5, 1e-5), torch.bfloat16: (1.6e-2, 1e-2)}


def model(dtype: torch.dtype, device: str = "chip") -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 100), nn.GELU(), nn.Linear(100, 33, bias=False)).to(device, dtype)


@pytest.mark.parametrize("device", ["cpu", "chip"])
@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@torch.no_grad()
def test_the_operator(dtype: torch.dtype, rows: int, device: str) -> None:
    weight, bias = (torch.randn(*shape, dtype=dtype, device=device) for shape in ((33, 70), (33,)))
    packed = ops.pack_linear(weight, rows)
    assert same(packed.dense(), weight)
    for shape in ((1,), (8,), (2, 3), (0,), (129,)):
        x = torch.randn(*shape, 70, dtype=dtype, device=device)
        for given in (bias, None):
            y = ops.packed_linear(x, packed, given)
            assert y.device == x.device and y.shape == (*shape, 33)
            rtol, atol = LIMIT[dtype]
            torch.testing.assert_close(y, F.linear(x, weight, given), rtol=rtol, atol=atol)


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.device == right.device and left.dtype == right.dtype and torch.equal(left, right)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@torch.no_grad()
def test_modules_are_packed_and_unpacked(dtype: torch.dtype) -> None:
    plain, packed = model(dtype), model(dtype)
    x = torch.randn(8, 64, dtype=dtype, device="chip")
    assert ops.pack_weights(packed, measure=False) == 2
    assert [type(each) for each in packed] == [PackedLinear, nn.GELU, PackedLinear]
    rtol, atol = LIMIT[dtype]
    torch.testing.assert_close(packed(x), plain(x), rtol=rtol, atol=atol)
    assert list(packed.state_dict()) == list(plain.state_dict())
    assert all(same(packed.state_dict()[name], value) for name, value in plain.state_dict().items())
    with pytest.raises(AttributeError, match="weight"):
        packed[0].weight.zero_()
    packed.load_state_dict({name: value * 2 for name, value in plain.state_dict().items()})
    assert same(packed[0].packed.dense(), plain[0].weight * 2)
    assert ops.unpack_weights(packed) == 2
    assert same(packed[2].weight, plain[2].weight * 2) and type(packed[0]) is nn.Linear


def test_the_packed_weight_takes_the_place_of_the_weight() -> None:
    layers = nn.Sequential(nn.Linear(512, 1024, device="chip"))
    before = torch.chip.memory_allocated()
    assert ops.pack_weights(layers, measure=False) == 1
    assert torch.chip.memory_allocated() <= before + 4096


def test_only_what_is_faster_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = {1: 1.2, 8: 0.7}
    monkeypatch.setattr("isthmus.ops.packed_weights._share", lambda x, w, packed: shares[x.shape[0]])
    monkeypatch.setattr("isthmus.ops.packed_weights._chosen", {})
    assert ops.pack_weights(model(torch.float32), rows=(1,)) == 0
    layers = model(torch.float32)
    assert ops.pack_weights(layers, rows=(1, 8)) == 2 and layers[0].packed.rows == 1
    large = torch.ones(4096, 1024, device="chip")
    assert ops.rows_to_pack(large, (1, 8)) == 8
    assert ops.rows_to_pack(large.double(), (1, 8)) == 0


def test_measured() -> None:
    assert ops.pack_weights(model(torch.bfloat16)) in (0, 1, 2)


def test_shared_weights_and_subclasses_stay() -> None:
    class Other(nn.Linear):
        pass

    tied = nn.ModuleDict({"embedding": nn.Embedding(9, 4), "head": nn.Linear(4, 9), "other": Other(4, 4)}).to(
        "chip"
    )
    tied["head"].weight = tied["embedding"].weight
    assert ops.pack_weights(tied, measure=False) == 0


def test_refusals() -> None:
    weight = torch.ones(3, 4, device="chip")
    packed = ops.pack_linear(weight)
    with pytest.raises(ValueError, match=r"the input is torch.float32 \(2, 5\) on chip:0; the weight takes"):
        ops.packed_linear(torch.ones(2, 5, device="chip"), packed)
    with pytest.raises(RuntimeError, match="no gradients"):
        ops.packed_linear(torch.ones(2, 4, device="chip", requires_grad=True), packed)
    with torch.chip.batch_invariant(), pytest.raises(RuntimeError, match="not batch-invariant"):
        ops.packed_linear(torch.ones(2, 4, device="chip"), packed)
    with pytest.raises(ValueError, match=r"torch.float16 is not packed"):
        ops.pack_linear(weight.half())
    with pytest.raises(ValueError, match=r"shape \(3, 0\) is not"):
        ops.pack_linear(weight[:, :0])


@torch.no_grad()
def test_a_call_is_captured() -> None:
    packed, x = ops.pack_linear(torch.randn(5, 6, device="chip")), torch.randn(2, 6, device="chip")
    graph = torch.chip.Graph()
    with torch.chip.graph(graph):
        y = ops.packed_linear(x, packed)
    x.fill_(2)
    graph.replay()
    assert torch.equal(y, ops.packed_linear(x, packed))
