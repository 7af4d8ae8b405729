"""Scripted functions hold a device as a constant and branch on is_cuda and device.type inside TorchScript."""

# answer: one hot True 3.0
# answer: scripted branch 2.0 1.0
# answer: type branch 20.0 10.0
# answer: constant True [5.0, 5.0]
# answer: module True 12.0
import torch
import torch.nn as nn


@torch.jit.script
def one_hot(ids: torch.Tensor, n: int) -> torch.Tensor:
    out = torch.zeros([ids.size(0), n], device=ids.device)
    return out.scatter_(1, ids.unsqueeze(1), 1.0)


@torch.jit.script
def by_flag(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.is_cuda else x


@torch.jit.script
def by_type(x: torch.Tensor) -> torch.Tensor:
    return x * (20 if x.device.type == "cuda" else 10)


@torch.jit.script
def constant() -> torch.Tensor:
    return torch.full([2], 5.0, device=torch.device("cuda"))


class Net(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.to("cuda") * 2 * torch.arange(x.size(0), device=x.device)).sum()


x = torch.ones(1)
encoded = one_hot(torch.tensor([0, 2, 1]).cuda(), 4)
print("one hot", encoded.is_cuda, encoded.sum().item())
print("scripted branch", by_flag(x.cuda()).item(), by_flag(x).item())
print("type branch", by_type(x.cuda()).item(), by_type(x).item())
print("constant", constant().is_cuda, constant().tolist())
total = torch.jit.script(Net())(torch.ones(4).cuda())
print("module", total.is_cuda, total.item())
