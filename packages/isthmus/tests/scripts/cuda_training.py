"""An ordinary CUDA training script, as its author wrote it for a GPU."""
# ruff: noqa - written as its author would

import argparse
import copy
import pickle
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
parser.add_argument("--epochs", type=int, default=2)
args = parser.parse_args()

if not torch.cuda.is_available():
    raise SystemExit("this script needs a GPU")
if torch.cuda.get_device_capability()[0] < 8 or int(torch.version.cuda.split(".")[0]) < 11:
    raise SystemExit("this script needs bfloat16")

torch.backends.cudnn.benchmark = True
torch.backends.cuda.matmul.allow_tf32 = True
torch.manual_seed(0)
torch.cuda.manual_seed_all(0)
device = torch.device(args.device)

model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)  # before the move, as many do
model.cuda()
scaler = torch.amp.GradScaler("cuda")
inputs = torch.randn(256, 16)
labels = inputs[:, :4].argmax(1)
loader = DataLoader(TensorDataset(inputs, labels), batch_size=64, pin_memory=True, num_workers=1)
side = torch.cuda.Stream()
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

first = last = None
start.record()
for _ in range(args.epochs * 4):
    for x, y in loader:
        with torch.cuda.stream(side):
            x = x.to(device, non_blocking=True)
            y = y.cuda(non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        x.record_stream(torch.cuda.current_stream())
        assert x.is_cuda and x.device.type == "cuda" and str(x.device) == "cuda:0"
        with torch.autocast(device_type=x.device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        first, last = first or loss.item(), loss.item()
end.record()
torch.cuda.synchronize()
assert last < 0.8 * first, (first, last)
assert start.elapsed_time(end) > 0
assert 0 < torch.cuda.max_memory_allocated() <= torch.cuda.max_memory_reserved()

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "checkpoint.pt"
    torch.save({"model": model.state_dict(), "rng": torch.cuda.get_rng_state()}, path)
    loaded = torch.load(path, map_location=device)
    assert loaded["model"]["0.weight"].is_cuda
    assert not torch.load(path, map_location="cpu")["model"]["0.weight"].is_cuda
    assert not torch.load(path, map_location=lambda storage, location: storage)["model"]["0.weight"].is_cuda
assert next(copy.deepcopy(model).parameters()).is_cuda
assert pickle.loads(pickle.dumps(device)) == device

scripted = torch.jit.script(model.eval())
assert torch.equal(scripted(x.float()), model(x.float()))
print(f"trained from {first:.3f} to {last:.3f} on {torch.cuda.get_device_name(device)}")
