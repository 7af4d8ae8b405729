"""Autocast appears as old and new context managers, as decorators, switched off, and asked about."""

# answer: ['float16', 'float16', 'float16', 'bfloat16', 'float32']
# answer: float16 float32
# answer: float32
# answer: True False
import torch
import torch.nn.functional as F
from torch.cuda.amp import autocast

x, w = torch.ones(2, 4, device="cuda"), torch.ones(3, 4, device="cuda")


def short(t):
    return str(t.dtype).split(".")[1]


forms = [
    autocast(),
    torch.cuda.amp.autocast(True),
    torch.autocast(device_type="cuda"),
    torch.amp.autocast("cuda", dtype=torch.bfloat16),
    torch.cuda.amp.autocast(enabled=False),
]
found = []
for form in forms:
    with form:
        found.append(short(F.linear(x, w)))
print(found)


@autocast()
def forward(a):
    h = F.linear(a, w)
    return h, h.softmax(-1)


print(*map(short, forward(x)))
print(short(torch.autocast("cuda", enabled=False)(F.linear)(x, w)))
with autocast():
    print(torch.is_autocast_enabled(), torch.is_autocast_cpu_enabled())
