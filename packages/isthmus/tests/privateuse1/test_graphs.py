"""Graphs, as PyTorch's test/test_cuda.py tests those of CUDA: captures, streams and events in them, refusals."""

from __future__ import annotations

import warnings

import pytest
import torch

from tests.helpers.graphs import OF_THE_CORE, capture
from tests.privateuse1.inventory import covers


def add_ten_times(x: torch.Tensor) -> torch.Tensor:
    for _ in range(10):
        x = x + 1
    return x


@covers("cuda_graphs", "test_graph_is_current_stream_capturing")
def test_a_stream_knows_whether_it_is_captured():
    stream, graph = torch.chip.Stream(), torch.chip.Graph()
    assert not torch.chip.is_current_stream_capturing()
    with torch.chip.stream(stream), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not stream.is_capturing()
        graph.capture_begin()
        assert torch.chip.is_current_stream_capturing() and stream.is_capturing()
        assert not torch.chip.default_stream().is_capturing()
        graph.capture_end()
    assert not stream.is_capturing()


@covers("cuda_graphs", "test_accelerator_graph_simple")
def test_the_graph_of_the_accelerator():
    stream, graph = torch.Stream(), torch.accelerator.Graph()
    with stream, graph:
        x = torch.full((1000,), 1, device="chip")
        assert stream.is_capturing()
        y = add_ten_times(x)
    assert not torch.accelerator.current_stream().is_capturing()
    y.zero_()
    graph.replay()
    assert y.sum().item() == 11000


@covers("cuda_graphs", "test_graph_capture_reset_recapture")
def test_a_graph_can_be_captured_again_after_reset():
    x = torch.ones(1000, device="chip")
    graph, y = capture(add_ten_times, x)
    graph.replay()
    assert y.sum().item() == 11000
    with pytest.raises(RuntimeError, match="reset"), torch.chip.graph(graph):
        pass
    graph.reset()
    with torch.chip.graph(graph):
        y.fill_(2)
        z = add_ten_times(y)
    graph.replay()
    assert z.sum().item() == 12000
    graph.reset()
    with pytest.raises(RuntimeError, match="captured nothing"):
        graph.replay()


@covers("cuda_graphs", "test_cuda_graph_raw_graph_reset_and_recapture")
@covers("cuda_graphs", "test_cuda_graph_raw_graph_keep_graph_false")
def test_instantiate():
    graph, x = torch.chip.Graph(keep_graph=True), torch.zeros(2000, device="chip")
    for step in (1.0, 2.0):
        x = torch.zeros(2000, device="chip")
        with torch.chip.graph(graph, capture_error_mode="relaxed"):
            x += step
        for i in (1, 2):
            graph.instantiate()
            graph.replay()
            assert torch.all(x == i * step)
        graph.reset()
    graph, _ = capture(lambda: x + 1)
    with pytest.raises(RuntimeError, match="only when keep_graph=true"):
        graph.instantiate()
    with pytest.raises(RuntimeError, match="cudaGraph_t"):
        graph.raw_cuda_graph()


@covers("cuda_graphs", "test_graph_debugdump")
@OF_THE_CORE
def test_debug_dump(tmp_path):
    x, graph, side = torch.ones(100, device="chip"), torch.chip.Graph(), torch.chip.Stream()
    graph.enable_debug_mode()
    with torch.chip.graph(graph):
        y = x * 2
        side.wait_stream(torch.chip.current_stream())
        with torch.chip.stream(side):
            z = y + 1
        torch.chip.current_stream().wait_stream(side)
    graph.debug_dump(str(tmp_path / "graph.dot"))
    text = (tmp_path / "graph.dot").read_text()
    assert "aten::mul" in text and "aten::add" in text and "->" in text
    graph.replay()
    assert torch.all(z == 3)


@covers("cuda_graphs", "test_graph_error")
def test_the_default_stream_is_not_captured():
    with pytest.raises(RuntimeError, match="graphs must be captured on a non-default stream"):
        torch.chip.Graph().capture_begin()
    assert torch.ones(1, device="chip").item() == 1


@covers("cuda_graphs", "test_graph_warn_if_has_zero_nodes")
@OF_THE_CORE
def test_an_empty_graph_warns():
    with pytest.warns(UserWarning, match="graph is empty"):
        capture(lambda: None)


@covers("cuda_graphs", "test_graph_capture_oom")
@OF_THE_CORE
def test_out_of_memory_in_a_capture():
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="out of memory"):
        capture(lambda: torch.zeros(2**40, device="chip"))
    graph, y = capture(lambda: torch.ones(3, device="chip"))
    graph.replay()
    assert y.sum().item() == 3


@covers("cuda_graphs", "test_repeat_graph_capture_cublas_workspace_memory")
def test_captures_leave_no_memory_behind():
    a, b = torch.rand(256, 128, device="chip"), torch.rand(128, 64, device="chip")
    torch.mm(a, b)
    torch.chip.empty_cache()
    before = torch.chip.mem_get_info()[0]
    for _ in range(20):
        graph, _ = capture(torch.mm, a, b)
        graph.replay()
        del graph, _
    torch.chip.empty_cache()
    assert torch.chip.mem_get_info()[0] >= before - 2**21


@covers("cuda_graphs", "test_graph_timing", "test_graph_external_wait_and_record")
@OF_THE_CORE
def test_external_events_are_those_of_each_replay():
    x = torch.ones(1000, device="chip")
    start, end = (torch.chip.Event(enable_timing=True, external=True) for _ in range(2))

    def function() -> torch.Tensor:
        start.record()
        y = x + 1
        end.record()
        return y

    graph, _ = capture(function)
    assert start.query(), "recorded by the capture"
    waiting, z = capture(lambda: (end.wait(), x * 2)[1])
    for _ in range(2):
        graph.replay()
        with torch.chip.stream(torch.chip.Stream()):
            waiting.replay()
        torch.chip.synchronize()
        assert end.query() and start.elapsed_time(end) > 0
        assert torch.all(z == 2)
