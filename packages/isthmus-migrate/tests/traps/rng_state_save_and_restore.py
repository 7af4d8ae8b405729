"""The GPU has its own random state: seeding, saving and restoring it must leave the host's numbers alone."""

# answer: True True
# answer: True False
# answer: True
# answer: True
# answer: True
# answer: 11
import torch

torch.manual_seed(1)
host_before = torch.get_rng_state()
torch.cuda.manual_seed_all(5)
torch.cuda.manual_seed(5)
state = torch.cuda.get_rng_state()
first = torch.rand(6, device="cuda")
print(torch.equal(torch.get_rng_state(), host_before), not state.is_cuda)

second = torch.rand(6, device="cuda")
torch.cuda.set_rng_state(state)
again = torch.rand(6, device="cuda")
print(torch.equal(first, again), torch.equal(first, second))

states = torch.cuda.get_rng_state_all()
print(len(states) == torch.cuda.device_count())
torch.randn(3)  # uses up the host's numbers only
a = torch.randn(3, device="cuda")
torch.cuda.set_rng_state_all(states)
b = torch.randn(3, device="cuda")
print(torch.equal(a, b) and b.is_cuda)
with torch.random.fork_rng(devices=[torch.cuda.current_device()]):
    inside = torch.rand(2, device="cuda")
print(torch.equal(inside, torch.rand(2, device="cuda")))
torch.manual_seed(11)
print(torch.cuda.initial_seed())
