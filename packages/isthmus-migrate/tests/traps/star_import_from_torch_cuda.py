"""A star import brings FloatTensor, device and stream from torch.cuda, so bare names are the CUDA ones."""

# answer: True True
# answer: True
# answer: False
# answer: True
# answer: True
# answer: 3.0
import torch
from torch.cuda import *
from torch.cuda.amp import *

ids = LongTensor([0, 1])
print(FloatTensor([1.0, 2.0]).is_cuda, ids.is_cuda)
print(is_available() and device_count() > 0)

with device(0):  # torch.cuda.device, a guard, not torch.device
    print(torch.zeros(1).is_cuda)

side = Stream()
with stream(side):
    x = torch.full((3,), 2.0, device="cuda")
side.synchronize()
synchronize()
print(x.is_cuda)

with autocast():
    y = torch.nn.functional.linear(x[None], torch.ones(1, 3, device="cuda"))
print(y.dtype == torch.float16)
scaler = GradScaler(init_scale=4.0)
print(scaler.scale(FloatTensor([0.75])).item())
