"""Tensors take their place from other tensors: .new(), new_zeros, type_as, to(other), and modules move in place."""

# answer: [True, True, True, True, True]
# answer: False True
# answer: True True
# answer: torch.float64 True
# answer: True
# answer: 8.0
import torch

x = torch.ones(2, 2).cuda()
like = [x.new(3), x.new([1, 2]), x.new_zeros(2), torch.zeros(2).type_as(x), torch.zeros(2).to(x)]
print([t.is_cuda for t in like])

t = torch.ones(2)
t.cuda()  # the result is thrown away, so t stays
m = torch.nn.Linear(2, 2)
m.cuda()  # a module moves itself
print(t.is_cuda, m.weight.is_cuda)
print(x.cuda() is x, x.to("cuda") is x)
d = t.to("cuda", torch.float64, non_blocking=True)
print(d.dtype, d.is_cuda)
copy = x.to(device="cuda", copy=True)
print(copy is not x and copy.data_ptr() != x.data_ptr())
copy += 1
print(copy.sum().item() if x.sum().item() == 4.0 else "shared")
