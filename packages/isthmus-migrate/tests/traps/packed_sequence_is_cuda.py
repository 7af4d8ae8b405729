"""A PackedSequence has is_cuda and cuda(), and no attribute device."""

# answer: True 3.0
# answer: True True
# answer: False
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence


def packed(lengths):
    made = pack_sequence([torch.ones(each) for each in lengths])
    return made.cuda()


p = pack_padded_sequence(torch.ones(2, 2, 1), [2, 1], batch_first=True).cuda()
print(p.is_cuda, p.data.sum().item())
q = packed([2, 1])
print(q.is_cuda, packed([3]).is_cuda)
print(q.cpu().is_cuda)
