"""A run is resumed from a checkpoint loaded to the host, and the optimizer's state is moved back by a loop."""

# answer: tagged True
# answer: mapped False True True
# answer: state moved True
# answer: same as uninterrupted True
import tempfile

import torch
import torch.nn as nn


def make():
    torch.manual_seed(0)
    model = nn.Linear(4, 2).cuda()
    return model, torch.optim.Adam(model.parameters(), lr=0.05)


def train(model, optimizer, steps):
    for i in range(steps):
        optimizer.zero_grad()
        model(torch.full((3, 4), i + 1.0).cuda()).pow(2).mean().backward()
        optimizer.step()


model, optimizer = make()
train(model, optimizer, 2)
with tempfile.TemporaryDirectory() as folder:
    path = folder + "/last.pth"
    torch.save({"epoch": 2, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    print("tagged", torch.load(path)["model"]["weight"].is_cuda)
    maps = ["cpu", "cuda:0", lambda storage, loc: storage.cuda(0)]
    states = [torch.load(path, map_location=m)["optimizer"]["state"] for m in maps]
    print("mapped", *(state[0]["exp_avg"].is_cuda for state in states))
    checkpoint = torch.load(path, map_location="cpu")
train(model, optimizer, 3)

resumed, optimizer2 = make()
resumed.load_state_dict(checkpoint["model"])
optimizer2.load_state_dict(checkpoint["optimizer"])
for state in optimizer2.state.values():
    state.update({k: v.cuda() for k, v in state.items() if torch.is_tensor(v)})
print("state moved", all(v.is_cuda for s in optimizer2.state.values() for v in s.values()))
train(resumed, optimizer2, 3)
print("same as uninterrupted", torch.allclose(resumed.weight, model.weight, atol=1e-5))
