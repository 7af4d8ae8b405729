"""The random states of the host and of the device are separate, and each is saved and restored by its own calls."""

# answer: restored True
# answer: host state alone False True
# answer: one seed for both True True
# answer: states True True
# answer: fork True
# answer: generator True True
import torch


def draw():
    return torch.rand(4, device="cuda")


torch.cuda.manual_seed(3)
saved = torch.cuda.get_rng_state()
first = draw()
torch.cuda.set_rng_state(saved)
print("restored", torch.equal(draw(), first))

torch.cuda.set_rng_state(saved)
host = torch.get_rng_state()
x, a = torch.rand(4), draw()
torch.set_rng_state(host)  # must not rewind the device
y, b = torch.rand(4), draw()
print("host state alone", torch.equal(a, b), torch.equal(x, y))

torch.manual_seed(11)
x, a = torch.rand(4), draw()
torch.manual_seed(11)
print("one seed for both", torch.equal(torch.rand(4), x), torch.equal(draw(), a))

states = torch.cuda.get_rng_state_all()
print("states", len(states) == torch.cuda.device_count(), not any(s.is_cuda for s in states))

torch.cuda.set_rng_state(saved)
with torch.random.fork_rng(devices=[torch.cuda.current_device()]):
    torch.cuda.manual_seed_all(99)
print("fork", torch.equal(draw(), first))

generator = torch.Generator(device="cuda").manual_seed(5)
a = torch.randn(3, device="cuda", generator=generator)
b = torch.randn(3, device="cuda", generator=generator.manual_seed(5))
print("generator", generator.device.type == "cuda", torch.equal(a, b))
