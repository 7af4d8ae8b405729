"""Old code guards by the name of the tensor type, by isinstance and by a dtype such as torch.cuda.FloatTensor."""

# answer: type names True False
# answer: isinstance True False True
# answer: converted True 6.0
# answer: constructed True True
# answer: masked [0.0, 2.0]
import torch

use_cuda = torch.cuda.is_available()
FloatTensor = torch.cuda.FloatTensor if use_cuda else torch.FloatTensor
LongTensor = torch.cuda.LongTensor if use_cuda else torch.LongTensor


def on_gpu(x):
    return x.type() == "torch.cuda.FloatTensor"


def masked(x):
    if isinstance(x, torch.cuda.FloatTensor):
        mask = torch.cuda.ByteTensor([0, 1]).bool()
    elif x.type().startswith("torch.cuda"):
        mask = torch.zeros(2, dtype=torch.bool).cuda()
    else:
        mask = torch.ByteTensor([1, 1]).bool()
    return x * mask


x = torch.tensor([1.0, 2.0])
print("type names", on_gpu(x.cuda()), on_gpu(x))
flags = [isinstance(t, torch.cuda.FloatTensor) for t in (x.cuda(), x)]
print("isinstance", *flags, isinstance(x.cuda().long(), LongTensor))
moved = torch.arange(4).type(FloatTensor)
print("converted", moved.is_cuda and moved.dtype == torch.float32, moved.sum().item())
print("constructed", FloatTensor(2, 3).fill_(1).is_cuda, LongTensor([1, 2]).is_cuda)
print("masked", masked(x.cuda()).tolist())
