"""A generator yields batches from inside a context manager that sets a side stream, and closures hold the device."""

# answer: inside True False
# answer: outside True
# answer: batches [0.0, 4.0, 8.0, 12.0] True
# answer: closure True False
import contextlib

import torch


@contextlib.contextmanager
def side_stream(device):
    stream = torch.cuda.Stream(device)
    with torch.cuda.device(device), torch.cuda.stream(stream):
        yield stream
    torch.cuda.current_stream().wait_stream(stream)


def batches(n, device, closed):
    try:
        for i in range(n):
            with side_stream(device):
                batch = torch.full((4,), float(i)).pin_memory().to(device, non_blocking=True)
            yield batch
    finally:
        closed.append(True)


def make_mover(device):
    def move(x):
        return x.to(device) if device.type == "cuda" else x

    return move


device = torch.device("cuda:0")
with side_stream(device) as stream:
    inside = torch.cuda.current_stream() == stream
    print("inside", inside, torch.cuda.current_stream() == torch.cuda.default_stream())
print("outside", torch.cuda.current_stream() == torch.cuda.default_stream())
closed = []
got = [b for b in batches(4, device, closed)]
print("batches", [b.sum().item() for b in got], closed == [all(b.is_cuda for b in got)])
print("closure", *(make_mover(torch.device(d))(torch.ones(1)).is_cuda for d in ("cuda", "cpu")))
