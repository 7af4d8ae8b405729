"""Tensors of the chip through torch.multiprocessing."""

from __future__ import annotations

import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
import torch.multiprocessing as mp

from isthmus import patches
from isthmus.chip import sharing


def through_pickle(tensor: torch.Tensor) -> torch.Tensor:
    return pickle.loads(ForkingPickler.dumps(tensor))


def double(inbox, outbox) -> None:
    tensor = inbox.get(timeout=120)
    outbox.put((tensor * 2).chip())
    inbox.get(timeout=120)  # stay until the answer has arrived: its shared memory is ours


def test_there_and_back_through_queues():
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=double, args=(inbox, outbox))
    child.start()
    inbox.put(torch.arange(5.0, device="chip:1"))
    answer = outbox.get(timeout=120)
    inbox.put(None)
    child.join(120)
    assert child.exitcode == 0
    assert answer.device.type == "chip"
    assert answer.tolist() == [0, 2, 4, 6, 8]


def test_it_is_a_copy_on_the_same_device():
    tensor = torch.ones(3, device="chip:1")
    other = through_pickle(tensor)
    other.fill_(2)
    assert other.device == torch.device("chip:1")
    assert tensor.tolist() == [1, 1, 1]


def test_parameter_stays_a_parameter():
    parameter = torch.nn.Parameter(torch.ones(2, device="chip"), requires_grad=False)
    other = through_pickle(parameter)
    assert isinstance(other, torch.nn.Parameter)
    assert not other.requires_grad
    assert through_pickle(torch.ones(2, device="chip", requires_grad=True)).requires_grad


def test_result_of_an_operation_is_refused_as_elsewhere():
    tensor = torch.ones(2, device="chip", requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="non-leaf tensor"):
        ForkingPickler.dumps(tensor)


def test_cpu_tensors_are_shared_as_before():
    tensor = torch.ones(3)
    through_pickle(tensor).fill_(5)
    assert tensor.tolist() == [5, 5, 5]


def test_undone():
    before = len(patches.active("chip"))
    sharing.uninstall()
    try:
        assert before - len(patches.active("chip")) == 2
        with pytest.raises(RuntimeError):
            ForkingPickler.dumps(torch.ones(1, device="chip"))
    finally:
        sharing.install()
