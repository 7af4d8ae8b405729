"""Graphs that torch_npu captures, and updates of their operators."""

import pytest

from tests.runtime.test_torch_npu import needs_torch_npu, run

UPDATE = """
import torch, torch_npu

torch.manual_seed(0)
query, key, value = (torch.randn(2, 4, length, 64, dtype=torch.float16).npu() for length in (1, 96, 96))
arguments = dict(num_heads=4, input_layout="BNSD", scale=0.125)

def attention(lengths):
    return torch_npu.npu_fused_infer_attention_score(
        query, key, value, actual_seq_lengths_kv=lengths, **arguments)[0]

graph = torch.npu.NPUGraph()
with torch.npu.graph(graph, auto_dispatch_capture=True):
    out = attention([96, 96]) * 2
seen = set()
for lengths in ([5, 7], [96, 1], [5, 7], [33, 64]):
    graph.replay()
    graph.update(cpu_update_input=[{"actual_seq_lengths_kv": lengths}])
    torch.npu.synchronize()
    assert torch.equal(out, attention(lengths) * 2)
    seen.add(tuple(out.flatten().tolist()))
assert len(seen) == 3
print("equal")
"""

GROUP = """
import torch, torch_npu

a, b = torch.arange(4.0).npu(), torch.full((4,), 10.0).npu()
out = torch.empty(4).npu()
graph, event, updater = torch.npu.NPUGraph(), torch.npu.ExternalEvent(), torch.npu.Stream()
with torch.npu.graph(graph):
    stream = torch.npu.current_stream()
    event.wait(stream)
    event.reset(stream)
    torch.npu.graph_task_group_begin(stream)
    torch.add(a, b, out=out)
    group = torch.npu.graph_task_group_end(stream)
    doubled = out * 2
for alpha in (3, -1):
    graph.replay()
    with torch.npu.stream(updater):
        torch.npu.graph_task_update_begin(updater, group)
        torch.add(a, b, alpha=alpha, out=out)
        torch.npu.graph_task_update_end(updater)
        event.record(updater)
    torch.npu.synchronize()
    assert doubled.tolist() == [2 * (i + 10 * alpha) for i in range(4)], doubled
print("equal")
"""


@needs_torch_npu
@pytest.mark.parametrize("script", [UPDATE, GROUP], ids=["update", "group"])
@pytest.mark.parametrize("queue", ["0", "1"])
def test_graphs(script: str, queue: str) -> None:
    assert run("-c", script, TASK_QUEUE_ENABLE=queue) == "equal\n"


@needs_torch_npu
def test_visible_devices() -> None:
    code = "import torch, torch_npu; print(torch.npu.device_count(), torch.ones(2, device='npu:1').device)"
    assert run("--devices", "4", "-c", code, ASCEND_RT_VISIBLE_DEVICES="1,3") == "2 npu:1\n"


TORCHAIR = """
import sys
import torch, torch_npu

sys.path.insert(0, torch_npu.__path__[0] + "/dynamo/torchair/core")  # torchair itself needs protobuf
import _npu_graph_executor, _npu_utils, _torchair

try:
    _torchair.InitializeGraphEngine({"option": "value"})
except RuntimeError as error:
    print(error)
"""


@needs_torch_npu
def test_torchair_loads_and_its_graphs_are_refused() -> None:
    assert run("-c", TORCHAIR) == (
        "ge::AscendString::AscendString(char const*): graphs are not supported by the reference runtime of AscendCL; "
        "use eager mode\n"
    )
