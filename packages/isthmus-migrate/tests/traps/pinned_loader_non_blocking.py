"""Batches are pinned by a DataLoader, also through a batch class with its own pin_memory(), then sent without waiting."""

# answer: True False
# answer: [True, True]
# answer: True
# answer: True False
# answer: 28.0
import torch
from torch.utils.data import DataLoader, TensorDataset


class Batch:
    def __init__(self, rows):
        self.x = torch.stack([row[0] for row in rows])

    def pin_memory(self):
        self.x = self.x.pin_memory()
        return self

    def to(self, device, non_blocking=False):
        self.x = self.x.to(device, non_blocking=non_blocking)
        return self


data = TensorDataset(torch.arange(8.0))
use_cuda = torch.cuda.is_available()
extra = {"pin_memory": True, "collate_fn": Batch} if use_cuda else {"collate_fn": Batch}
(plain,) = next(iter(DataLoader(data, batch_size=4, pin_memory=use_cuda)))
print(plain.is_pinned(), plain.is_cuda)
batches = list(DataLoader(data, batch_size=4, **extra))
print([b.x.is_pinned() for b in batches])
gpu = [b.to("cuda", non_blocking=True) for b in batches]
print(all(b.x.is_cuda for b in gpu))
staging = torch.empty(2, pin_memory=True)
print(staging.is_pinned(), torch.empty(2).is_pinned())
torch.cuda.synchronize()
print(sum(b.x.sum().item() for b in gpu))
