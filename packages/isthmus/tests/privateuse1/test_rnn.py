"""LSTM layers on the chip in every arrangement: the numbers of the CPU, to the bit where its kernels run."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from tests.privateuse1 import covers

LENGTH, BATCH, INPUT, HIDDEN = 5, 2, 10, 20

ARRANGEMENTS = {
    "plain": {},
    "three_layers": {"num_layers": 3},
    "bidirectional": {"num_layers": 2, "bidirectional": True},
    "batch_first": {"batch_first": True},
}


@pytest.mark.parametrize("initial", [False, True])
@pytest.mark.parametrize("arrangement", ARRANGEMENTS.values(), ids=ARRANGEMENTS.keys())
@covers(
    "rnn",
    "test_lstm_basic",
    "test_lstm_multi_layer",
    "test_lstm_bidirectional",
    "test_lstm_batch_first",
    "test_lstm_with_initial_hidden",
    "test_lstm_cpu_parity",
)
def test_lstm_is_that_of_the_cpu(arrangement, initial):
    exact = (
        {"rtol": 0, "atol": 0} if torch.chip.is_host_addressable() else {}
    )  # elsewhere no layer of oneDNN's
    lstm = nn.LSTM(INPUT, HIDDEN, **arrangement)
    on_chip = copy.deepcopy(lstm).to("chip")
    shape = (BATCH, LENGTH, INPUT) if lstm.batch_first else (LENGTH, BATCH, INPUT)
    x = torch.randn(shape)
    rows = lstm.num_layers * (2 if lstm.bidirectional else 1)
    state = (torch.randn(rows, BATCH, HIDDEN), torch.randn(rows, BATCH, HIDDEN)) if initial else None
    expected, expected_state = lstm(x, state)
    found, found_state = on_chip(x.to("chip"), tuple(s.to("chip") for s in state) if state else None)
    for one, other in ((expected, found), *zip(expected_state, found_state, strict=True)):
        assert other.device.type == "chip"
        torch.testing.assert_close(other.cpu(), one, **exact)
    expected.sum().backward()
    found.sum().backward()
    for one, other in zip(lstm.parameters(), on_chip.parameters(), strict=True):
        torch.testing.assert_close(other.grad.cpu(), one.grad, **exact)


@covers("rnn", "test_lstm_packed_sequence")
def test_packed_sequence():
    lstm = nn.LSTM(INPUT, HIDDEN)
    packed = nn.utils.rnn.pack_sequence([torch.randn(length, INPUT) for length in (5, 3, 1)])
    expected, expected_state = lstm(packed)
    found, found_state = lstm.to("chip")(packed.to("chip"))
    assert found.data.device.type == "chip"
    assert torch.equal(found.data.cpu(), expected.data)
    for one, other in zip(expected_state, found_state, strict=True):
        assert torch.equal(one, other.cpu())
