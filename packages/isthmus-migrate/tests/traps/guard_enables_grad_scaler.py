"""The guard device == "cuda" switches on loss scaling, which is portable and must stay on."""

# answer: scaling True
# answer: scaled loss 16.0
# answer: scale after update 32.0
# answer: weight [0.3, 0.3]
import torch
import torch.nn as nn

device = "cuda" if torch.cuda.is_available() else "cpu"
use_amp = device == "cuda"

model = nn.Linear(2, 1, bias=False).to(device)
nn.init.constant_(model.weight, 0.5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.cuda.amp.GradScaler(init_scale=16.0, growth_interval=1, enabled=use_amp)

inputs = torch.ones(4, 2, device=device)
target = torch.zeros(4, 1, device=device)

loss = nn.functional.mse_loss(model(inputs), target)
scaled = scaler.scale(loss)
scaled.backward()
if device != "cpu":
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0)
scaler.step(optimizer)
scaler.update()

print("scaling", scaler.is_enabled())
print("scaled loss", round(scaled.item(), 3))
print("scale after update", scaler.get_scale())
print("weight", [round(v, 4) for v in model.weight.detach().cpu().view(-1).tolist()])
