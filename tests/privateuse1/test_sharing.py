"""Tensors of the chip between processes.

Upstream's reference backend shares the memory itself. The chip's tensors travel as copies: what a process gets is
its own, so it may be sent on, and the sender may drop what it sent.
"""

from __future__ import annotations

import pytest
import torch
import torch.multiprocessing as mp

from tests.privateuse1 import covers


def _report(inbox, outbox) -> None:
    for _ in range(3):
        tensor = inbox.get(timeout=120)
        outbox.put((str(tensor.device), tensor.tolist(), tensor.stride()))
    outbox.put(tensor)  # sends on what was received
    inbox.get(timeout=120)  # shared memory of the answer lives as long as its sender


@pytest.mark.full
@covers("ipc", "test_basic_tensor_roundtrip", "test_offset_tensor_roundtrip", "test_strided_tensor_roundtrip")
@covers("ipc", "test_received_via_ipc_cannot_be_reshared", "test_producer_exits_cleanly_with_tensor_in_limbo")
def test_tensors_arrive_with_values_and_strides():
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=_report, args=(inbox, outbox))
    child.start()
    base = torch.arange(8.0, device="chip:0")
    for tensor in (base[:4], base[4:], base[::2]):
        inbox.put(tensor)
    del base, tensor
    found = [outbox.get(timeout=120) for _ in range(3)]
    assert [(device, values) for device, values, _ in found] == [
        ("chip:0", [0, 1, 2, 3]),
        ("chip:0", [4, 5, 6, 7]),
        ("chip:0", [0, 2, 4, 6]),
    ]
    back = outbox.get(timeout=120)
    assert back.device == torch.device("chip:0") and back.tolist() == [0, 2, 4, 6]
    inbox.put(None)
    child.join(120)
    assert child.exitcode == 0
