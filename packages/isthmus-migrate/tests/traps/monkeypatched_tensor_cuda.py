"""The method torch.Tensor.cuda is replaced, first to count the moves and then to make them do nothing."""

# answer: counted 1 3
# answer: still moves True True
# answer: disabled False False
# answer: restored True
# answer: count unchanged 3
from unittest import mock

import torch
import torch.nn as nn

original = torch.Tensor.cuda
calls = []


def counting(self, *args, **kwargs):
    calls.append(tuple(self.shape))
    return original(self, *args, **kwargs)


torch.Tensor.cuda = counting
x = torch.ones(2, 3).cuda()
after_tensor = len(calls)
model = nn.Linear(3, 1).cuda()  # moves a weight and a bias
print("counted", after_tensor, len(calls))
print("still moves", x.is_cuda, all(p.is_cuda for p in model.parameters()))
torch.Tensor.cuda = original

with mock.patch.object(torch.Tensor, "cuda", lambda self, *args, **kwargs: self):
    y = torch.ones(2).cuda()
    host_model = nn.Linear(3, 1).cuda()
print("disabled", y.is_cuda, any(p.is_cuda for p in host_model.parameters()))
print("restored", y.cuda().is_cuda and host_model.cuda().weight.is_cuda)
print("count unchanged", len(calls))
