"""Quantized tensors on the chip: the CPU's kernels over the chip's integers."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import pytest
import torch

pytestmark = [
    pytest.mark.host("a chip whose memory the CPU cannot address copies, or refuses quantized tensors"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
]

X = torch.tensor([[-1.2, 0.3, 2.0, 0.05], [0.7, -0.4, 1.9, 5.0], [0.0, 1.1, -3.0, 0.9]])


def per_tensor(device: str) -> torch.Tensor:
    return torch.quantize_per_tensor(X.to(device), 0.1, 10, torch.quint8)


def per_channel(device: str) -> torch.Tensor:
    scales, zero_points = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1, 2, 3])
    return torch.quantize_per_channel(X.to(device), scales.to(device), zero_points.to(device), 0, torch.qint8)


def four_bits(device: str) -> torch.Tensor:
    scales, zero_points = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1.0, 2.0, 3.0])
    return torch.quantize_per_channel(
        X.to(device), scales.to(device), zero_points.to(device), 0, torch.quint4x2
    )


def stored(tensor: torch.Tensor) -> torch.Tensor:
    buffer = io.BytesIO()
    torch.save(tensor, buffer)
    buffer.seek(0)
    return torch.load(buffer)


def written_through_a_view(tensor: torch.Tensor) -> torch.Tensor:
    tensor.view(-1)[1:3] = 0.4
    return tensor


CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "itself": lambda q: q,
    "to the CPU": lambda q: q.cpu(),
    "from the CPU": lambda q: q.cpu().to(q.device),
    "clone": torch.clone,
    "deepcopy": copy.deepcopy,
    "saved": stored,
    "row": lambda q: q[1],
    "filled": lambda q: q.fill_(0.7),
    "numbers copied": lambda q: q.copy_(torch.full((3, 4), 0.7, device=q.device)),
}
PER_TENSOR: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "flip": lambda q: q.flip(0),
    "transposed": lambda q: q.t().contiguous(),
    "flattened": lambda q: q.flatten(),
    "resized": lambda q: q.resize_(2),
    "top": lambda q: torch.topk(q, 2).values,
    "cat": lambda q: torch.cat([q, q]),
    "relu": torch.relu,
    "interpolated": lambda q: torch.nn.functional.interpolate(q[None, None], scale_factor=2),
    "view written": written_through_a_view,
    "other quantizer": lambda q: q.copy_(torch.quantize_per_tensor(torch.ones(3, 4), 0.5, 1, torch.quint8)),
}


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.qscheme() == expected.qscheme() and found.dtype == expected.dtype
    assert found.dequantize().cpu().equal(expected.dequantize())
    assert found.int_repr().cpu().equal(expected.int_repr())
    if found.qscheme() == torch.per_tensor_affine:
        assert (found.q_scale(), found.q_zero_point()) == (expected.q_scale(), expected.q_zero_point())
    else:
        assert found.q_per_channel_scales().device == found.device
        assert found.q_per_channel_scales().cpu().equal(expected.q_per_channel_scales())
        assert found.q_per_channel_zero_points().cpu().equal(expected.q_per_channel_zero_points())


@pytest.mark.parametrize("make", [per_tensor, per_channel])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_equals_the_cpus(make, name):
    source = make("chip")
    found = CALLS[name](source)
    assert found.device.type == ("cpu" if name == "to the CPU" else "chip")
    assert_same(found, CALLS[name](make("cpu")))


@pytest.mark.parametrize("name", PER_TENSOR)
def test_a_call_on_one_scale_equals_the_cpus(name):
    assert_same(PER_TENSOR[name](per_tensor("chip")), PER_TENSOR[name](per_tensor("cpu")))


def test_elements_of_four_bits():
    expected = four_bits("cpu").dequantize()
    source = four_bits("chip")
    assert source.dequantize().cpu().equal(expected)
    for _ in range(50):  # a copy of too many bytes would spoil the heap
        assert source.cpu().dequantize().equal(expected)
        assert four_bits("cpu").to("chip").dequantize().cpu().equal(expected)
    with pytest.raises(NotImplementedError, match="take whole, contiguous tensors of one shape"):
        source.copy_(
            torch.quantize_per_channel(
                X[:1].to("chip"),
                torch.ones(1, device="chip"),
                torch.zeros(1, device="chip"),
                0,
                torch.quint4x2,
            )
        )


def test_a_tensor_without_a_scale_takes_no_numbers():
    with pytest.raises(RuntimeError, match="has no scale and zero point"):
        torch.empty(3, dtype=torch.quint8, device="chip").copy_(torch.ones(3, device="chip"))


def test_a_view_shares_its_integers_and_a_result_keeps_its_scales():
    source = per_tensor("chip")
    assert source.flatten()._base is source
    kept = per_channel("chip")
    scales = kept.q_per_channel_scales()
    scales.fill_(7.0)
    assert kept.q_per_channel_scales().tolist() == [7.0] * 3


def test_a_dense_tensor_takes_no_quantized_one():
    with pytest.raises(RuntimeError, match="use dequantize"):
        torch.zeros(3, 4, device="chip").copy_(per_tensor("chip"))


def test_a_graph_refuses_quantized_tensors():
    source = per_tensor("chip")
    refused = pytest.raises(RuntimeError, match="not permitted when stream is capturing")
    with refused, torch.chip.graph(torch.chip.Graph()):
        source.dequantize()
    assert_same(source, per_tensor("cpu"))
