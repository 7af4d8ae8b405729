"""Old tensor classes are called, passed to .type(), compared as strings and used with isinstance."""

# answer: True 6.0
# answer: True torch.int64
# answer: [True, False, False]
# answer: gpu gpu cpu
# answer: True True
# answer: torch.float16
import torch

FloatTensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
LongTensor = torch.cuda.LongTensor if torch.cuda.is_available() else torch.LongTensor

x = FloatTensor([1, 2, 3])
print(x.is_cuda, x.sum().item())
steps = x.cpu().type(LongTensor)
print(steps.is_cuda, steps.dtype)
print([isinstance(t, torch.cuda.FloatTensor) for t in (x, x.cpu(), steps)])


def where(t):
    return "gpu" if t.type().startswith("torch.cuda.") else "cpu"


print(where(x), where(x.long()), where(x.type(torch.FloatTensor)))
print(x.type() == "torch.cuda.FloatTensor", steps.type() == "torch.cuda.LongTensor")
half = torch.ones(2).type("torch.cuda.HalfTensor")
print(half.dtype if half.is_cuda else "not moved")
