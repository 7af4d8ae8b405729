"""torch.device is used as a context manager, also nested and inside a function, and then as a global default."""

# answer: True True
# answer: False True
# answer: [True, False, True]
# answer: True
# answer: True False
# answer: False
import torch

gpu = torch.device("cuda")

with gpu:
    net = torch.nn.Linear(2, 2)
    seen = [torch.zeros(1).is_cuda]
    with torch.device("cpu"):
        seen.append(torch.tensor([1.0]).is_cuda)
        forced = torch.ones(1, device="cuda")
    seen.append(torch.arange(3).is_cuda)
print(net.weight.is_cuda, net.bias.is_cuda)
print(torch.zeros(1).is_cuda, forced.is_cuda)
print(seen)


def make_mask(n, device=gpu):
    with device:
        return torch.tril(torch.ones(n, n))


print(make_mask(2).is_cuda)
torch.set_default_device("cuda:0")
print(torch.empty(2).is_cuda, torch.empty(2, device="cpu").is_cuda)
torch.set_default_device(None)
print(torch.empty(2).is_cuda)
