"""Memory of graphs and pinned memory, as PyTorch's test/test_cuda.py tests those of CUDA."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
import torch

from tests.helpers.graphs import OF_THE_CORE, capture
from tests.privateuse1.inventory import covers

POOLS = ("own", "of another graph", "of a handle")


def pools(kind: str, first: torch.chip.Graph | None = None) -> dict[str, Any]:
    if kind == "own":
        return {}
    return {"pool": torch.chip.graph_pool_handle() if first is None else first.pool()}


def add_with_temporaries(x: torch.Tensor, value: int) -> torch.Tensor:
    return (x.clone() + value) + (x.clone() + value)


@covers("cuda_graphs", "test_graph_two_successive")
def test_two_graphs_in_succession():
    def several(x: torch.Tensor, value: int, count: int = 5) -> torch.Tensor:
        for _ in range(count):
            x = add_with_temporaries(x, value)
        return x

    reserved = {}
    for kind in POOLS:
        torch.chip.empty_cache()
        x = torch.ones(1000, device="chip")
        options = pools(kind) if kind == "of a handle" else {}
        first, a = capture(lambda x: several(x.clone(), 1), x, **options)
        second, b = capture(several, a, 1, **(pools(kind, first) if kind == "of another graph" else options))
        del a
        c = several(x.clone(), 3, 2)
        first.replay()
        c = several(c, 3, 2)
        second.replay()
        c = several(c, 3, 2)
        assert b.sum().item() == 1000 * 3070 and c.sum().item() == 1000 * 442
        reserved[kind] = torch.chip.memory_stats()["reserved_bytes.all.current"]
        del x, b, c, first, second
    assert reserved["own"] - reserved["of a handle"] == 2 << 20
    assert reserved["own"] - reserved["of another graph"] == 2 << 20


@covers("cuda_graphs", "test_graph_three_successive")
@pytest.mark.parametrize("kind", POOLS)
def test_graphs_that_share_a_pool_are_replayed_in_their_order(kind):
    x = torch.ones(1000, device="chip")
    options = pools(kind) if kind == "of a handle" else {}
    g0, (c, d) = capture(lambda: (x + 1, x + 2), **options)
    later = pools(kind, g0) if kind == "of another graph" else options
    held = [c]
    del c
    g1, e = capture(lambda: held.pop() + 3, **later)
    g2, f = capture(lambda: d + 4, **later)
    for graph in (g0, g1, g2):
        graph.replay()
    assert e.sum().item() == 5000 and f.sum().item() == 7000
    # f took the memory of c, which was free.
    for graph in (g0, g2, g1):
        graph.replay()
    assert e.sum().item() == (5000 if kind == "own" else 10000) and f.sum().item() == 7000


@covers("cuda_graphs", "test_graph_concurrent_replay")
def test_graphs_replayed_on_two_streams():
    x = torch.ones(100000, device="chip")
    first, a = capture(lambda: add_with_temporaries(x.clone(), 1))
    second, b = capture(lambda: add_with_temporaries(x.clone(), 2))
    streams = [torch.chip.Stream(), torch.chip.Stream()]
    torch.chip.synchronize()
    streams[1].wait_stream(streams[0])
    for stream, graph in zip(streams, (first, second), strict=True):
        with torch.chip.stream(stream):
            graph.replay()
    for stream in streams:
        torch.chip.current_stream().wait_stream(stream)
    assert a.sum().item() == 100000 * 4 and b.sum().item() == 100000 * 6


@covers("cuda_graphs", "test_graph_memory_stats_and_use_result_after_destroy_graph")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("elements", [128, 1 << 18, (10 << 18) + 128])
def test_memory_of_a_graph(elements):
    gc.collect()
    torch.chip.empty_cache()
    pool = "small_pool" if elements * 4 <= 1 << 20 else "large_pool"

    def stats() -> dict[str, int]:
        found = torch.chip.memory_stats()
        return {
            name: found[f"{name}.{pool}.current"]
            for name in ("segment", "reserved_bytes", "active", "requested_bytes")
        }

    def several(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        for _ in range(5):
            x = x.clone() + 1
        return x

    x = torch.ones(elements, device="chip")
    before = stats()
    graph, y = capture(several, x)
    captured = stats()
    assert captured["active"] - before["active"] == 1
    assert captured["requested_bytes"] - before["requested_bytes"] == elements * 4
    for _ in range(2):
        graph.replay()
        assert stats() == captured
        assert y.sum().item() == 6 * elements
        torch.chip.empty_cache()
    del graph
    torch.chip.empty_cache()
    after = stats()
    assert y.sum().item() == 6 * elements
    assert after["segment"] - before["segment"] == 1
    assert after["requested_bytes"] - before["requested_bytes"] == elements * 4


@covers("cuda_graphs", "test_graph_record_stream")
def test_record_stream_in_a_capture():
    streams = [torch.chip.Stream() for _ in range(3)]
    pending = torch.zeros(3, device="chip")
    x, graph = torch.zeros(3, device="chip"), torch.chip.Graph()
    torch.chip.synchronize()
    with torch.chip.stream(streams[0]):
        pending.record_stream(streams[0])
        pending.fill_(1)
    del pending
    with torch.chip.stream(streams[1]):
        graph.capture_begin()
        y = x.clone()
        address = y.data_ptr()
        streams[2].wait_stream(streams[1])
        with torch.chip.stream(streams[2]):
            y.fill_(1)
            y.record_stream(streams[2])
            del y
        assert torch.empty(3, device="chip").data_ptr() != address
        streams[1].wait_stream(streams[2])
        graph.capture_end()
    torch.chip.synchronize()
    torch.zeros(3, device="chip")
    graph.replay()


@covers("cuda_graphs", "test_cuda_graph_error_options")
@pytest.mark.parametrize("mode", ["thread_local", "relaxed"])
def test_other_threads_allocate_during_a_capture(mode):
    def allocate() -> None:
        with torch.chip.stream(torch.chip.Stream()):
            torch.chip.caching_allocator_delete(torch.chip.caching_allocator_alloc(1024))

    def function() -> torch.Tensor:
        x = torch.zeros(2000, device="chip")
        thread = threading.Thread(target=allocate)
        thread.start()
        thread.join()
        return x + x + x

    graph, y = capture(function, capture_error_mode=mode)
    y.fill_(1)
    graph.replay()
    assert y.sum().item() == 0
    with pytest.raises(RuntimeError, match="Unknown capture error mode"):
        capture(function, capture_error_mode="strict")


@OF_THE_CORE
def test_other_threads_wait_for_the_device_during_a_capture():
    x = torch.zeros(8, device="chip")

    def function() -> None:
        thread = threading.Thread(target=torch.chip.synchronize)
        thread.start()
        thread.join()
        x.add_(1)

    graph, _ = capture(function, capture_error_mode="thread_local")
    graph.replay()
    assert x.sum().item() == 8


@covers("cuda_graphs", "test_cuda_graph_allocator_propagates_stream")
def test_streams_of_a_capture_share_its_pool():
    x = torch.randn(1 << 20, device="chip")
    known = {segment["segment_pool_id"] for segment in torch.chip.memory_snapshot()}
    graph, streams = torch.chip.Graph(), [torch.chip.Stream(), torch.chip.Stream()]
    with torch.chip.stream(streams[0]):
        graph.capture_begin()
        y = x + x
    with torch.chip.stream(streams[1]):
        streams[1].wait_stream(streams[0])
        z = y + x
    streams[0].wait_stream(streams[1])
    with torch.chip.stream(streams[0]):
        graph.capture_end()
    found = [segment["segment_pool_id"] for segment in torch.chip.memory_snapshot()]
    assert [id for id in found if id not in known] == [graph.pool()] * 2
    z.zero_()
    graph.replay()
    assert torch.equal(z, x + x + x)


def pinned(x: torch.Tensor) -> torch.Tensor:
    return x.pin_memory()


@covers("cuda_graphs", "test_pin_memory_no_use", "test_pin_memory_no_use2", "test_pin_memory_use")
def test_pinned_memory_in_a_capture():
    def function() -> torch.Tensor:
        first, second = torch.empty(8, pin_memory=True), torch.empty(8, pin_memory=True)
        assert first.data_ptr() != second.data_ptr()
        address = second.data_ptr()
        del second
        used = pinned(torch.arange(8.0))
        assert used.data_ptr() == address
        x = torch.zeros(8, device="chip")
        x.copy_(used, non_blocking=True)
        held.append(used)
        return x + 1

    held: list[torch.Tensor] = []
    graph, y = capture(function, capture_error_mode="thread_local")
    for value in (3, 4):
        held[0].fill_(value)
        graph.replay()
        assert torch.all(y == value + 1)


@covers("cuda_graphs", "test_two_graphs")
@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("deleted", [True, False])
def test_pinned_memory_of_two_graphs(used, deleted):
    pool, held, addresses = torch.chip.graph_pool_handle(), [], []

    def function() -> None:
        data = torch.empty(1 << 10).pin_memory()
        x = torch.zeros(1 << 10, device="chip")
        if used:
            x.copy_(data, non_blocking=True)
        addresses.append(data.data_ptr())
        if not deleted:
            held.append(data)

    first, second = capture(function, pool=pool), capture(function, pool=pool)
    assert addresses[0] != addresses[1] or (deleted and not used)
    del first, second


@covers("cuda_graphs", "test_unpinned_memory_use", "test_unpinned_memory_use_device_to_host")
@pytest.mark.parametrize("to_device", [True, False])
def test_pageable_memory_is_not_copied_in_a_capture(to_device):
    ends = [torch.ones(8), torch.ones(8, device="chip")]
    to, source = reversed(ends) if to_device else ends
    with pytest.raises(
        RuntimeError, match=r"a copy (to|from) the chip.*not permitted when stream is capturing"
    ):
        capture(lambda: to.copy_(source, non_blocking=True))
