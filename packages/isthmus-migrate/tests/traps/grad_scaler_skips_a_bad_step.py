"""The old and the new GradScaler scale the loss, skip a step with an infinite gradient and carry their state over."""

# answer: 8.0 True
# answer: 0.5 8.0
# answer: 0.5 4.0
# answer: 4.0
# answer: 1.0 False
import torch
from torch.cuda.amp import GradScaler

w = torch.nn.Parameter(torch.ones(1).cuda())
opt = torch.optim.SGD([w], lr=0.5)
use_cuda = torch.cuda.is_available()
scaler = GradScaler(init_scale=8.0, backoff_factor=0.5, growth_interval=100, enabled=use_cuda)


def step(factor):
    opt.zero_grad()
    loss = (w * factor).sum()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    torch.nn.utils.clip_grad_norm_([w], 10.0, error_if_nonfinite=False)
    scaler.step(opt)
    scaler.update()
    return w.item(), scaler.get_scale()


print(scaler.scale(torch.ones(1, device="cuda")).item(), scaler.is_enabled())
print(*step(1.0))
print(*step(float("inf")))
other = torch.amp.GradScaler("cuda", init_scale=2.0)
other.load_state_dict(scaler.state_dict())
print(other.get_scale())
off = torch.cuda.amp.GradScaler(enabled=False)
print(off.get_scale(), off.is_enabled())
