"""Running out of memory is recognised by the exception's class in one place and by its text in another."""

# answer: caught by class
# answer: caught by text
# answer: batch 4 after 2 retries
# answer: other error kept True
# answer: classes True True
import torch
from torch.cuda import OutOfMemoryError


def step(batch_size):
    if batch_size > 4:
        torch.empty(1 << 46, device="cuda")  # no device has this much
    return torch.ones(batch_size, device="cuda").sum().item()


try:
    step(64)
except torch.cuda.OutOfMemoryError:
    print("caught by class")
except RuntimeError:
    print("caught late")

size, retries = 16, 0
while True:
    try:
        size = int(step(size))
        break
    except RuntimeError as e:
        if "CUDA out of memory" not in str(e):
            raise
        if retries == 0:
            print("caught by text")
        torch.cuda.empty_cache()
        size, retries = size // 2, retries + 1
print("batch", size, "after", retries, "retries")

try:
    torch.ones(2, device="cuda") + torch.ones(3, device="cuda")
except RuntimeError as e:
    print("other error kept", "out of memory" not in str(e) and not isinstance(e, OutOfMemoryError))
print("classes", issubclass(OutOfMemoryError, RuntimeError), OutOfMemoryError is torch.OutOfMemoryError)
