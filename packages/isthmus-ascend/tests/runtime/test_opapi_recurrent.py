"""LSTM and GRU against torch.nn in float64: outputs, states and gradients."""

from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.runtime import opapi
from tests.runtime.opapi import single
from tests.runtime.tensors import leaf
from tests.runtime.test_opapi_errors import refused

SAVED = {"LSTM": ("h", "c", "i", "j", "f", "o", "tanhc"), "GRU": ("h", "r", "z", "n", "hidden")}
BACKWARD = {"LSTM": "LstmBackward", "GRU": "GRUBackward"}
CASES = [(layers, two, biases, first) for layers in (1, 2) for two in (False, True)
         for biases, first in ((True, False), (False, True))]  # fmt: skip


def close(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5, check_dtype=False)


def judge(kind: str, layers: int, two: bool, biases: bool, first: bool, lengths: list[int] | None) -> None:
    """Compare outputs, states and gradients; sequences of several lengths are padded.

    A batch size for each position says how many of them reach it.
    """
    steps, batch, size, hidden, cells = 4, 3, 5, 2, layers * (2 if two else 1)
    module = getattr(torch.nn, kind)(size, hidden, layers, biases, first, bidirectional=two).double()
    shape = (batch, steps) if first else (steps, batch)
    x, count = leaf(*shape, size), 2 if kind == "LSTM" else 1
    states = [leaf(cells, batch, hidden) for _ in range(count)]
    packed = pack_padded_sequence(x, lengths) if lengths else x
    y, last = module(packed, tuple(states) if count == 2 else states[0])
    y, finals = pad_packed_sequence(y)[0] if lengths else y, list(last) if count == 2 else [last]
    parameters = list(module.parameters())

    start = [single(state) for state in states]
    given: dict[str, Any] = {
        "input": single(x).flatten(0, 1) if lengths else single(x), "params": single(parameters),
        "batch_sizes": packed.batch_sizes if lengths else None, "hx": start if count == 2 else start[0],
        "has_biases": biases, "num_layers": layers, "bidirectional": two, "batch_first": first,
    }  # fmt: skip
    saved = {name: [torch.zeros(steps, batch, hidden) for _ in range(cells)] for name in SAVED[kind]}
    out = torch.zeros(*shape, hidden * (2 if two else 1))
    ends = {name: torch.zeros(cells, batch, hidden) for name in ("h_n", "c_n")[:count]}
    opapi.named(kind, **given, train=True, out=out, **ends, **saved)
    close([out, *ends.values()], [y, *finals])
    again = torch.zeros_like(out)
    opapi.named(kind, **given, out=again, **ends)
    assert torch.equal(again, out)

    grads = [torch.randn_like(t) for t in (y, *finals)]
    expected = torch.autograd.grad([y, *finals], [x, *states, *parameters], grads)
    incoming = dict(zip(("grad_y", "grad_h_n", "grad_c_n"), map(single, grads), strict=False))
    dx, dparams = torch.zeros_like(given["input"]), [torch.zeros(p.shape) for p in parameters]
    starts = {name: torch.zeros(cells, batch, hidden) for name in ("grad_h_0", "grad_c_0")[:count]}
    opapi.named(BACKWARD[kind], **given, **saved, **incoming, grad_input=dx, **starts, grad_params=dparams)
    close([dx.view(x.shape), *starts.values(), *dparams], list(expected))


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize(("layers", "two", "biases", "first"), CASES)
def test_forward_and_gradients(kind: str, layers: int, two: bool, biases: bool, first: bool) -> None:
    judge(kind, layers, two, biases, first, None)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("two", [False, True])
def test_sequences_of_several_lengths(kind: str, two: bool) -> None:
    judge(kind, 2, two, True, False, [4, 2, 1])


def test_absent_gradients_are_zeros() -> None:
    module, x = torch.nn.LSTM(3, 2).double(), leaf(4, 1, 3)
    y, _ = module(x)
    parameters = single(list(module.parameters()))
    given = {"input": single(x), "hx": [torch.zeros(1, 1, 2)] * 2, "params": parameters}
    given |= {name: [torch.zeros(4, 1, 2)] for name in SAVED["LSTM"]} | {"has_biases": True, "num_layers": 1}
    opapi.named("LSTM", **given, train=True, out=torch.zeros(4, 1, 2))
    dx, dparams = torch.zeros(4, 1, 3), [torch.zeros(p.shape) for p in parameters]
    opapi.named("LstmBackward", **given, grad_y=torch.ones(4, 1, 2), grad_input=dx, grad_params=dparams)
    close(dx, torch.autograd.grad(y.sum(), x)[0])


def test_refused() -> None:
    weights = [torch.zeros(9, 4), torch.zeros(9, 3)]
    x, state, out = torch.zeros(5, 2, 4), torch.zeros(1, 2, 3), torch.zeros(5, 2, 3)

    def message(params: list[torch.Tensor], hx: torch.Tensor, sizes: torch.Tensor | None = None) -> str:
        return refused("GRU", x, params, hx, sizes, False, 1, 0.0, False, False, False, out, state,
                       *[None] * 5)  # fmt: skip

    assert "aclnnGRU" in message(weights[:1], state) and "params has 1 tensors, expected 2" in message(
        weights[:1], state
    )
    assert "hx has shape [2, 2, 3], expected [1, 2, 3]" in message(weights, torch.zeros(2, 2, 3))
    assert "a weight has shape [8, 3]" in message([weights[0], torch.zeros(8, 3)], state)
    assert "batch_sizes has shape [1] and input [5, 2, 4]" in message(weights, state, torch.tensor([2]))
