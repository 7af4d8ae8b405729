"""torch.cuda.is_available is assigned to force the CPU, and torch.cuda.synchronize to count its calls."""

# answer: True
# answer: cpu False
# answer: cuda True
# answer: waits 1
import torch

original = torch.cuda.is_available
print(torch.cuda.is_available())
torch.cuda.is_available = lambda: False
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
print(device.type, torch.ones(1, device=device).is_cuda)
torch.cuda.is_available = original
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
print(device.type, torch.ones(1, device=device).is_cuda)

waits = []
torch.cuda.synchronize = waits.append
torch.cuda.synchronize(device)
print("waits", len(waits))
