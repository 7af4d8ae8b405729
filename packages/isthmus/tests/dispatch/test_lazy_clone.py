"""Lazy clones: torch._lazy_clone(), which shares memory until one of the tensors is written."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable

import pytest
import torch

from tests.helpers.graphs import capture


def is_shared(tensor: torch.Tensor) -> bool:
    return torch._C._is_cow_tensor(tensor)


def address(tensor: torch.Tensor) -> int:
    return torch._C._data_address(tensor)


WRITES: dict[str, Callable[[torch.Tensor], object]] = {
    "in place": lambda x: x.add_(1),
    "out": lambda x: torch.add(x, 1, out=x),
    "view": lambda x: x.view(2, 2).t().add_(1),
    "list": lambda x: torch._foreach_add_([x[:2], x[2:]], 1),
    "copy": lambda x: x.copy_(x + 1),
    "within": lambda x: (x[2:].copy_(x[:2]), x.copy_(torch.arange(1.0, 5.0))),
    "index": lambda x: x.index_put_((torch.arange(4, device="chip"),), x + 1),
    "random": lambda x: (x.normal_(), x.copy_(torch.arange(1.0, 5.0))),
    "from the host": lambda x: x.copy_(torch.arange(1.0, 5.0)),
    "resized": lambda x: (x.resize_(8), x.resize_(4).add_(1)),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("written", ["original", "clone"])
def test_a_write_leaves_the_other(name, written):
    x = torch.arange(4.0, device="chip")
    place = address(x)
    y = x._lazy_clone()
    assert is_shared(x) and is_shared(y) and address(y) == place == address(x)
    first, second = (x, y) if written == "original" else (y, x)
    WRITES[name](first)
    assert first.tolist() == [1, 2, 3, 4] and second.tolist() == [0, 1, 2, 3]
    assert not is_shared(first) and address(first) != place
    WRITES[name](second)
    assert first.tolist() == second.tolist() == [1, 2, 3, 4]


def test_the_last_one_keeps_the_memory():
    gc.collect()
    x = torch.arange(1024.0, device="chip")
    place, before = address(x), torch.chip.memory_allocated()
    clones = [x._lazy_clone(), x._lazy_clone(), x[1:]._lazy_clone()]
    assert [address(clone) for clone in clones] == [place] * 3
    assert torch.chip.memory_allocated() <= before  # less where another test's memory is freed meanwhile
    clones[2].add_(1)
    assert clones[2][:3].tolist() == [2, 3, 4] and address(clones[2]) != place
    del clones
    gc.collect()
    x.add_(1)
    assert not is_shared(x) and address(x) == place and x[:4].tolist() == [1, 2, 3, 4]
    assert torch.chip.memory_allocated() <= before
    y = x._lazy_clone()
    del x
    assert y.mul_(2)[:4].tolist() == [2, 4, 6, 8] and address(y) == place


def test_reads_copy_nothing():
    x = torch.arange(4.0, device="chip")
    y = x._lazy_clone()
    assert (x + y).tolist() == [0, 2, 4, 6] and torch.stack([x, y]).sum().item() == 12
    assert is_shared(x) and is_shared(y)
    deep = copy.deepcopy(y)
    deep.add_(1)
    assert y.tolist() == [0, 1, 2, 3] and address(x) == address(y)


def test_it_is_differentiable():
    x = torch.arange(4.0, device="chip", requires_grad=True)
    (x._lazy_clone() * 2).sum().backward()
    assert x.grad.tolist() == [2] * 4


def test_the_copy_is_on_the_device_of_the_tensor():
    x = torch.arange(4.0, device="chip:1")
    y = x._lazy_clone()
    before = torch.chip.memory_allocated(0), torch.chip.memory_allocated(1)
    y.add_(1)
    assert torch.chip.memory_allocated(0) == before[0] and torch.chip.memory_allocated(1) > before[1]
    assert x.tolist() == [0, 1, 2, 3] and y.tolist() == [1, 2, 3, 4]


def test_memory_that_another_stream_reads_is_not_written():
    x, stream = torch.ones(1 << 20, device="chip"), torch.chip.Stream()
    y, place = x._lazy_clone(), address(x)
    host = torch.empty(1 << 20, pin_memory=True)
    stream.wait_stream(torch.chip.current_stream())
    with torch.chip.stream(stream):
        host.copy_(y, non_blocking=True)
    y.record_stream(stream)
    del y
    x.add_(1)
    stream.synchronize()
    assert host.eq(1).all() and x.eq(2).all() and address(x) != place


@pytest.mark.host("a capture made by the driver refuses to move memory")
def test_a_graph_writes_a_lazy_clone_from_before_its_capture():
    x = torch.arange(4.0, device="chip")
    y = x._lazy_clone()
    graph, _ = capture(lambda: y.add_(1))
    assert x.tolist() == y.tolist() == [0, 1, 2, 3]
    x.zero_()
    graph.replay()
    graph.replay()
    assert y.tolist() == [2, 3, 4, 5] and x.tolist() == [0] * 4


def test_a_lazy_clone_of_a_capture_is_cloned_at_each_replay():
    x = torch.zeros(4, device="chip")
    graph, y = capture(lambda: x._lazy_clone().add_(1))
    x.fill_(5)
    graph.replay()
    assert y.tolist() == [6] * 4 and x.tolist() == [5] * 4


def test_a_loop_over_threads_cannot_give_memory_of_its_own():
    x = torch.arange(4.0, device="chip")
    y = x._lazy_clone()
    with pytest.raises(RuntimeError, match="loop function of at::parallel_for is forbidden"):
        torch._test_parallel_materialize(y, 1, False)
    assert is_shared(x) and is_shared(y)
    torch._test_parallel_materialize(x + 1, 1, False)
