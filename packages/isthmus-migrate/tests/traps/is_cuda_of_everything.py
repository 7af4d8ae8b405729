"""The flag is_cuda is read from tensors, parameters, storages, sparse tensors and packed sequences."""

# answer: tensors True False
# answer: model False True
# answer: storage True False
# answer: packed True False
# answer: gradient True
# answer: batch True False
# answer: sparse True True
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence

x = torch.randn(2, 3)
print("tensors", x.cuda()[0, 1:].is_cuda, x.cuda().cpu().is_cuda)

model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
before = any(p.is_cuda for p in model.parameters())
model.cuda()
print("model", before, all(t.is_cuda for t in model.state_dict().values()))

print("storage", x.cuda().untyped_storage().is_cuda, x.untyped_storage().is_cuda)

packed = pack_padded_sequence(torch.ones(2, 3, 1).cuda(), torch.tensor([3, 1]), batch_first=True)
print("packed", packed.is_cuda and packed.data.is_cuda, packed.cpu().is_cuda or packed.batch_sizes.is_cuda)

model(x.cuda()).sum().backward()
print("gradient", next(model.parameters()).grad.is_cuda)

batch = [x.cuda(), x.cuda().long(), x.cuda().bool()]
print("batch", all(t.is_cuda for t in batch), all(t.is_cuda for t in batch + [x]))

sparse = torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2)).cuda().coalesce()
print("sparse", sparse.is_cuda, sparse.values().is_cuda and sparse.indices().is_cuda)
