"""A random generator lives on the GPU: it repeats itself there and refuses to serve tensors on the host."""

# answer: True False
# answer: True [0, 1, 2, 3, 4]
# answer: refused
# answer: 21 True
# answer: True
import torch


def make_generator(seed, device=None):
    return torch.Generator(device=device or "cuda").manual_seed(seed)


g = make_generator(3)
first = torch.randn(4, device="cuda", generator=g)
second = torch.randn(4, device=g.device, generator=g)
g.manual_seed(3)
print(torch.equal(first, torch.randn(4, generator=g, device="cuda")), torch.equal(first, second))

order = torch.randperm(5, generator=g, device="cuda")
print(order.is_cuda, sorted(order.tolist()))
try:
    torch.randn(4, generator=g)
    print("served")
except RuntimeError:
    print("refused")

h = torch.Generator("cuda")
h.manual_seed(21)
print(h.initial_seed(), h.device.type == "cuda")
h.set_state(g.get_state())
noise = torch.empty(3, device="cuda").uniform_(generator=g)
print(torch.equal(noise, torch.empty(3, device="cuda").uniform_(generator=h)))
