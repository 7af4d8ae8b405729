"""A plain number stands for a GPU in .to(), device=, .cuda(), torch.device() and a get_device() answer."""

# answer: [True, True, True, True, True, True]
# answer: 0 -1
# answer: True True
# answer: 3 21.0
# answer: same
import torch

gpu = 0
torch.cuda.set_device(gpu)
model = torch.nn.Linear(3, 3, device=gpu)
placed = [
    torch.zeros(3).to(0),
    torch.tensor([1, 2, 3], device=0),
    torch.ones(3).cuda(gpu),
    torch.full((3,), 7.0, device=torch.device(0)),
    model.weight,
    torch.ones(3, dtype=torch.float64).to(gpu, torch.float32),
]
print([t.is_cuda for t in placed])
print(placed[0].get_device(), placed[0].cpu().get_device())
print(torch.device(0).type == "cuda", placed[2].device.index == gpu)
# here the 0 is a dimension and the 3 a size: nothing to do with a device
total = placed[3].sum(0)
print(placed[3].size(0), total.item())
print("same" if torch.device(gpu) == torch.device("cuda:0") == total.device else "different")
