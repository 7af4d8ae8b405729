"""Everything at the level of the module."""

import sys

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(5)
batch_size = 8
x = torch.randn(64, 6)
y = x @ torch.randn(6, 1)
loader = DataLoader(TensorDataset(x, y), batch_size, False)

net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
net = nn.DataParallel(net).cuda()
loss_fn = nn.MSELoss()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

for epoch in range(3):
    running_loss, seen = 0.0, 0
    for i, batch in enumerate(loader):
        inputs, targets = batch[0].cuda(), batch[1].cuda()
        optimizer.zero_grad()
        loss = loss_fn(net(inputs), targets)
        loss.backward()
        optimizer.step()
        running_loss += loss.detach()
        if i % 4 == 3:
            print("step", i, "loss", round(loss.item(), 7), f"so far {running_loss.item() / (i + 1):.8f}")
        error = loss.item() * len(targets)
        seen += targets.numel()
    print("last", f"{loss.item():.8f} of {seen}, {error:.8f}")
    print("epoch", epoch, "loss", f"{running_loss.item() / len(loader):.8f}")

torch.save(net.module.state_dict(), sys.argv[1])
final = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
final.load_state_dict(torch.load(sys.argv[1], map_location="cpu"))
print("weight", f"{final[0].weight.sum().item():.8f}")
