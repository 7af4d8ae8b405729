"""torch.cuda.device picks which GPU is current, yet unlike torch.device it does not move new tensors there."""

# answer: False True
# answer: 0 0
# answer: True
# answer: False
# answer: 0
# answer: True
import torch

x = torch.arange(4.0)
with torch.cuda.device(0):
    plain = torch.zeros(4)
    moved = x.cuda()
    print(plain.is_cuda, moved.is_cuda)
    print(torch.cuda.current_device(), moved.get_device())

with torch.cuda.device("cuda:0"):
    print(torch.ones(1, device="cuda").device == moved.device)

# the index of a tensor on the host is -1, which makes the guard do nothing
with torch.cuda.device(x.get_device()):
    print((x + 1).is_cuda)

with torch.cuda.device_of(moved):
    print(torch.cuda.current_device())

guard = torch.cuda.device(moved.device)
with guard:
    out = moved * 2
print(out.is_cuda and out.sum().item() == 12.0)
