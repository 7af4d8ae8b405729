"""Nested tensors on the chip, strided and jagged, give the results of nested CPU tensors, to the bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

LAYOUTS = ("strided", "jagged")


def _nested(device: str, layout: str, requires_grad: bool = False) -> torch.Tensor:
    pieces = [torch.arange(4.0 * rows).view(rows, 4).sin() for rows in (2, 3, 1)]
    return torch.nested.nested_tensor(
        pieces, device=device, layout=getattr(torch, layout), requires_grad=requires_grad
    )


def _module(module: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda n: module.to(n.device)(n)


def _attention(n: torch.Tensor) -> torch.Tensor:
    if n.layout is torch.strided:
        heads = n.reshape(3, -1, 2, 2).transpose(1, 2).contiguous()
    else:
        heads = n.unflatten(-1, [2, 2]).transpose(1, 2)
    return nn.functional.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).contiguous()


def _seeded(make: Callable[[], nn.Module]) -> Callable[[torch.Tensor], torch.Tensor]:
    def call(n: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return _module(make())(n)

    return call


CASES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "elementwise": lambda n: (n * 2).relu() - n,
    "linear": _seeded(lambda: nn.Linear(4, 5)),
    "layer norm": _seeded(lambda: nn.LayerNorm(4)),
    "softmax": lambda n: torch.softmax(n, -1),
    "matmul": lambda n: torch.matmul(n, torch.arange(8.0, device=n.device).view(4, 2)),
    "attention": _attention,
    "moved": lambda n: n.cpu().to(n.device),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_results_and_gradients_are_those_of_cpu(case: str, layout: str) -> None:
    if (case, layout) == ("matmul", "strided"):
        pytest.skip("CPU has no product of a strided nested and a dense tensor")
    found: list[list[torch.Tensor]] = []
    for device in ("cpu", "chip"):
        nested = _nested(device, layout, requires_grad=True)
        result = CASES[case](nested)
        assert result.is_nested and result.device.type == device
        padded = result.to_padded_tensor(0.5)
        padded.square().sum().backward()
        assert nested.grad is not None and nested.grad.device.type == device
        found.append([padded.detach().cpu(), *(piece.cpu() for piece in nested.grad.unbind())])
    assert all(map(torch.equal, *found))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("training", [False, True])
def test_encoder_takes_the_path_of_cpu(training: bool) -> None:
    results = []
    for device in ("cpu", "chip"):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        encoder = nn.TransformerEncoder(layer, 2).to(device).train(training)
        padding = torch.arange(5)[None] >= torch.tensor([5, 3, 2])[:, None]
        with torch.set_grad_enabled(training):
            results.append(encoder(torch.randn(3, 5, 8).to(device), src_key_padding_mask=padding.to(device)))
    assert torch.equal(results[1].cpu(), results[0])


@pytest.mark.filterwarnings("ignore")
def test_an_operator_that_cpu_lacks_is_refused_by_name() -> None:
    with pytest.raises(
        NotImplementedError, match=r"aten::new_empty: nested tensors .* and no kernel of the CPU takes them"
    ):
        _nested("chip", "strided").new_empty((2,))
