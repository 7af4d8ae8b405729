"""The vendor's torch_npu on the reference runtime."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.children import ROOT

FOLDER = ROOT / "build/torch_npu"
needs_torch_npu = pytest.mark.skipif(
    not FOLDER.exists(), reason="torch_npu is not installed; `make ascend` installs it"
)

TRAINING = """
import os
import torch, torch_npu
import torch.distributed as dist
from torch.nn.functional import mse_loss

rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.npu.set_device(rank)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
expected = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
expected.load_state_dict(model.state_dict())
trained = model.npu()
if size > 1:
    dist.init_process_group("hccl")
    trained = torch.nn.parallel.DistributedDataParallel(trained)
optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01) for m in (model, expected)]
random = torch.Generator().manual_seed(1)
for _ in range(10):
    inputs, targets = torch.randn(size, 6, 8, generator=random), torch.randn(size, 6, 4, generator=random)
    mse_loss(trained(inputs[rank].npu()), targets[rank].npu()).backward()
    (sum(mse_loss(expected(inputs[i]), targets[i]) for i in range(size)) / size).backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
for one, other in zip(model.parameters(), expected.parameters(), strict=True):
    assert torch.equal(one.detach().cpu(), other.detach())
if size > 1:
    dist.barrier()
    dist.destroy_process_group()
print("equal")
"""

DEVICE = """
import torch, torch_npu

assert torch.npu.device_count() == 2
ones = torch.ones(1 << 20, pin_memory=True).npu(non_blocking=True)
stream, event = torch.npu.Stream(), torch.npu.Event(enable_timing=True)
with torch.npu.stream(stream):
    stream.wait_stream(torch.npu.default_stream())
    twice = ones * 2
    event.record()
torch.npu.current_stream().wait_event(event)
assert (ones + twice).sum().item() == 3 << 20
assert ones.to("npu:1").device.index == 1
values = torch.arange(6.0).view(2, 3)
blocks = torch_npu.npu_format_cast(values.npu(), 29)
assert torch.equal(torch_npu.npu_format_cast(blocks, 2).cpu(), values)
swapped = torch_npu.empty_with_swapped_memory([512, 512], dtype=torch.float32, device="npu:0").fill_(2)
assert (swapped * ones[0]).sum().item() == 2 << 18
try:
    torch.empty(1 << 30, device="npu")
except torch.OutOfMemoryError as error:
    assert "256.00 MiB total capacity" in str(error), error
else:
    raise AssertionError("4 GiB fit")
print((ones[:3] + 1).tolist())
"""


GRAPH = """
import copy
import torch, torch_npu
from torch.nn.functional import mse_loss

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).npu()
inputs, targets = torch.randn(6, 8).npu(), torch.randn(6, 4).npu()

def step(model, optimizer, inputs, targets):
    optimizer.zero_grad(set_to_none=True)
    loss = mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
side = torch.npu.Stream()
side.wait_stream(torch.npu.current_stream())
with torch.npu.stream(side):
    step(model, optimizer, inputs, targets)
torch.npu.current_stream().wait_stream(side)
eager = copy.deepcopy(model)
eager_optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
graph = torch.npu.NPUGraph()
with torch.npu.graph(graph):
    loss = step(model, optimizer, inputs, targets)
    numbers = torch.rand(9, device="npu")
drawn = set()
for _ in range(3):
    inputs.normal_()
    graph.replay()
    drawn.add(tuple(numbers.tolist()))
    assert torch.equal(loss, step(eager, eager_optimizer, inputs, targets))
for one, other in zip(model.parameters(), eager.parameters(), strict=True):
    assert torch.equal(one, other)
assert len(drawn) == 3
print("equal")
"""


def start(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``isthmus ascend`` with these arguments."""
    path = os.pathsep.join([str(FOLDER), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", "isthmus", "ascend", *arguments],
        env={**os.environ, "PYTHONPATH": path, "ISTHMUS_ASCEND_MEMORY": "256MiB", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def run(*arguments: str, **environment: str) -> str:
    """Return the output of ``isthmus ascend run`` with these arguments."""
    child = start("run", *arguments, **environment)
    assert child.returncode == 0, child.stderr
    return child.stdout


@needs_torch_npu
def test_verification_line() -> None:
    out = run("-c", "import torch;import torch_npu; a = torch.randn(3, 4).npu(); print(a + a);")
    assert "device='npu:0'" in out


@needs_torch_npu
@pytest.mark.parametrize("segments", ["False", "True"])
def test_device(segments: str) -> None:
    out = run("--devices", "2", "-c", DEVICE, PYTORCH_NPU_ALLOC_CONF=f"expandable_segments:{segments}")
    assert out == "[2.0, 2.0, 2.0]\n"


@needs_torch_npu
@pytest.mark.parametrize("queue", ["0", "1", "2"])
def test_training_equals_cpu(queue: str) -> None:
    assert run("-c", TRAINING, TASK_QUEUE_ENABLE=queue) == "equal\n"


@needs_torch_npu
@pytest.mark.parametrize("queue", ["0", "1", "2"])
def test_models_train_as_on_the_cpu(queue: str) -> None:
    said = run(str(ROOT / "tests/ascend/train_models.py"), TASK_QUEUE_ENABLE=queue).splitlines()
    assert len(said) == 20
    # torch_npu's own formula of the gradient of a 2-D linear layer has another order: its router.
    rounded = [line for line in said if not line.endswith(" equal")]
    assert [line.partition(" differs")[0] for line in rounded] in (
        [],
        ["Mixtral float32 foreach", "Mixtral float32 fused"],
    )
    assert all(float(line.split()[-1]) < 1e-4 for line in rounded)


@needs_torch_npu
def test_graph_equals_eager() -> None:
    assert run("-c", GRAPH) == "equal\n"


@needs_torch_npu
def test_two_ranks_equal_one(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    assert run("--nproc", "2", str(script)) == "equal\n" * 2
