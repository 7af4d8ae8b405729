"""The CPU in CUDA's place: ``isthmus run --device cpu``, and the scope in a process without a chip."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import torch
from torch import nn

assert torch.cuda.is_available() and torch.cuda.device_count() == 1 and torch.version.cuda
device = torch.device("cuda:0")
model = nn.DataParallel(nn.Linear(4, 3).to(0)).to(device)
x = torch.ones(2, 4).pin_memory().cuda(non_blocking=True)
places = [x, x.to(0), x.to("cuda:1"), torch.zeros(2, device=0), torch.cuda.FloatTensor(2), torch.ones(1).to(device)]
assert all(each.device.type == "cuda" and each.is_cuda and not each.is_pinned() for each in places)
assert x.type() == "torch.cuda.FloatTensor" and x.type("torch.cuda.HalfTensor").dtype == torch.float16
stream, begin, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
begin.record()
with torch.cuda.stream(stream), torch.cuda.device(1):
    x.record_stream(stream)
    stream.wait_stream(torch.cuda.current_stream())
end.record()
torch.cuda.synchronize()
assert begin.elapsed_time(end) >= 0 and end.query()
assert torch.cuda.memory_allocated() == torch.cuda.max_memory_reserved() == 0 and torch.cuda.mem_get_info()[1] > 0
torch.cuda.empty_cache()
torch.cuda.manual_seed_all(3)
first = torch.rand(3, device="cuda")
state = torch.cuda.get_rng_state()
torch.manual_seed(3)
assert torch.equal(first, torch.rand(3))
torch.cuda.set_rng_state(state)
scaler = torch.amp.GradScaler("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torch.autocast("cuda", dtype=torch.bfloat16):
    output = model(x)
assert output.dtype == torch.bfloat16
scaler.scale(output.float().sum()).backward()
scaler.step(optimizer)
scaler.update()
torch.save(model.state_dict(), "model.pt")
torch.load("model.pt", map_location="cuda:0")
torch.distributed.init_process_group("nccl", store=torch.distributed.HashStore(), rank=0, world_size=1)
parallel = nn.parallel.DistributedDataParallel(nn.Linear(4, 3).cuda(), device_ids=[0], output_device=0)
parallel(x).sum().backward()
torch.distributed.destroy_process_group()
print("done")
"""


WORKERS = """
import torch
from torch.utils.data import DataLoader

def shown(batch):
    item = batch[0]
    return item.is_cuda, item.device.type, item.untyped_storage().is_cuda

class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return torch.ones(1)

if __name__ == "__main__":
    for method in ("fork", "spawn"):
        loader = DataLoader(Items(), num_workers=1, collate_fn=shown, multiprocessing_context=method)
        print(list(loader))
        x = torch.ones(1, device="cuda")
        assert x.is_cuda and x.device.type == "cuda" and x.untyped_storage().is_cuda
"""


def run(folder, *command):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ISTHMUS_", "PYTHON"))}
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=kept,
        timeout=300,
    )


@pytest.mark.full
def test_a_script_that_uses_much_of_torch_cuda(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run(tmp_path, "-m", "isthmus", "run", "--device", "cpu", "script.py")
    assert done.stdout == "done\n" and done.returncode == 0, done.stderr
    assert done.stderr.startswith("isthmus: cuda -> cpu\n")


@pytest.mark.full
def test_tensors_of_a_loaders_workers_are_the_hosts(tmp_path):
    """MONAI refuses to send CUDA's tensors between processes, and a loader waits for such a batch indefinitely."""
    (tmp_path / "script.py").write_text(WORKERS)
    done = run(tmp_path, "-m", "isthmus", "run", "--device", "cpu", "script.py")
    assert done.stdout == f"{[(False, 'cpu', False)] * 2}\n" * 2 and done.returncode == 0, done.stderr


@pytest.mark.full
def test_leaving_the_scope_undoes_it(tmp_path):
    code = """
import os
os.environ.update(ISTHMUS_DEVICE="cpu", ISTHMUS_DRIVER="none")
import torch
from isthmus import shim
before = torch.Tensor.pin_memory, torch.nn.parallel.DistributedDataParallel.__init__
with shim.enter():
    assert torch.ones(1, device="cuda:1").device == torch.device("cpu")
assert before == (torch.Tensor.pin_memory, torch.nn.parallel.DistributedDataParallel.__init__)
assert not torch.cuda.is_available()
print("done")
"""
    done = run(tmp_path, "-c", code)
    assert done.stdout == "done\n", done.stderr
