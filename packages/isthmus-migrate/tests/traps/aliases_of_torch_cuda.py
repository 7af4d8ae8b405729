"""torch.cuda goes by other names: import as, from import, a variable, renamed functions and an unbound method."""

# answer: True True True
# answer: 4
# answer: [True, True]
# answer: True
# answer: 0
import torch
import torch as th
import torch.cuda as tc
from torch import cuda
from torch.cuda import current_device as where_am_i
from torch.cuda import is_available as has_gpu

c = torch.cuda
to_gpu = torch.Tensor.cuda


class Runtime:
    cuda = torch.cuda
    sync = staticmethod(torch.cuda.synchronize)


print(tc.is_available(), cuda.is_available(), has_gpu())
print(sum(m.device_count() > 0 for m in (c, tc, Runtime.cuda, th.cuda)))
xs = list(map(to_gpu, [torch.zeros(1), torch.ones(2)]))
print([x.is_cuda for x in xs])
Runtime.sync()
c.synchronize()
with cuda.stream(tc.Stream()):
    y = th.ones(3, device=th.device("cuda" if c.is_available() else "cpu"))
cuda.synchronize()
print(y.is_cuda)
print(where_am_i())
