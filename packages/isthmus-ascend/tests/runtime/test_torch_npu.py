"""The vendor's torch_npu on the reference runtime."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.children import ROOT
from tools.repository import ASCEND

FOLDER = ROOT / f"build/torch_npu{Path(sys.prefix).name.removeprefix('.venv')}"  # as the Makefile names it
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

# Operators of the older interface make views contiguous on their way to another device.
VIEWS = """
import torch, torch_npu

VIEWS = (
    lambda x: x.view(2, 300)[:, :9].reshape(2, 3, 3).transpose(1, 2)[:, ::2],
    lambda x: x.view(20, 30)[1:, 3:17:3].t(),
    lambda x: x.as_strided((3, 4, 5), (7, 2, 3), 5),
    lambda x: x.view(2, 300).expand(3, 2, 300)[:, :, ::300],
    lambda x: x.as_strided((4, 2), (3, 300), 1),
    lambda x: x.as_strided((2, 0), (3, 300), 1),
    lambda x: x.as_strided((2, 2), (0, 5), 7),
)
for dtype in (torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.int8):
    x = (torch.arange(600) % 7).to(dtype)
    for view in VIEWS:
        assert torch.equal(view(x.npu()).to("npu:1").cpu(), view(x)), (dtype, view(x))
    target = torch.zeros(20, 30, dtype=dtype)
    for place in (target, target.to("npu:1")):
        place[::2, 5:15:2].copy_(x.view(20, 30)[1::2, ::6].to(place.device))
        if place is not target:
            assert torch.equal(place.cpu(), target)
print("equal")
"""


SWAPPED = """
import torch, torch_npu

swapped = torch_npu.empty_with_swapped_memory(torch.Size([1000]), dtype=torch.float32, device=torch.device("npu:0"))
swapped.copy_(torch.arange(1000.0))
twice = swapped + swapped
swapped.add_(1)
print(swapped[:3].tolist(), twice[-2:].tolist(), swapped.sum().item())
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


def launch(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start ``isthmus ascend`` with these arguments."""
    path = os.pathsep.join([str(FOLDER), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, "-m", "isthmus", "ascend", *arguments],
        env={**os.environ, "PYTHONPATH": path, "ISTHMUS_ASCEND_MEMORY": "256MiB", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``isthmus ascend`` with these arguments."""
    with launch(*arguments, **environment) as child:
        try:
            out, err = child.communicate(timeout=300)
        finally:
            child.kill()
    return subprocess.CompletedProcess(arguments, child.returncode, out, err)


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
def test_views_reach_another_device() -> None:
    assert run("--devices", "2", "-c", VIEWS) == "equal\n"


@needs_torch_npu
def test_tensors_in_host_memory() -> None:
    assert run("-c", SWAPPED) == "[1.0, 2.0, 3.0] [1996.0, 1998.0] 500500.0\n"


@needs_torch_npu
@pytest.mark.parametrize("queue", ["0", "1", "2"])
def test_training_equals_cpu(queue: str) -> None:
    assert run("-c", TRAINING, TASK_QUEUE_ENABLE=queue) == "equal\n"


@needs_torch_npu
@pytest.mark.sampled(1)
@pytest.mark.parametrize("queue", ["1", "0", "2"])
def test_models_train_as_on_the_cpu(queue: str) -> None:
    said = run(str(ASCEND / "tests/runtime/train_models.py"), TASK_QUEUE_ENABLE=queue).splitlines()
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
def test_pretrain_llama(tmp_path: Path) -> None:
    """The example trains on two ranks, writes a checkpoint, and continues from it to the bit."""
    script = [str(ROOT / "examples/pretrain_llama.py"), "--tiny", "--output", str(tmp_path / "llama")]
    command = ["--nproc", "2", *script, "--dropout", "0.1", "--save-interval", "10"]
    assert "2 x Ascend910B2, bfloat16 autocast" in run(*command)
    assert "iterations 11-20 bit-equal" in run(*command, "--resume", "10", "--verify-resume")


@needs_torch_npu
def test_two_ranks_equal_one(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    written = run("--nproc", "2", str(script)).split()
    assert written in (["equal"] * 2, ["equalequal"])  # two ranks may write at once
