"""A parametrised decorator moves the arguments to the device and another one times by events."""

# answer: weighted_sum 20.0 False
# answer: timed True 1 seen [(True, True), (False, False)]
import functools

import torch

seen, times = [], []


def on_device(device="cuda", back="cpu"):
    def wrap(fn):
        @functools.wraps(fn)
        def inner(*args, **kwargs):
            args = [a.to(device) if torch.is_tensor(a) else a for a in args]
            return fn(*args, **{k: v.to(device) for k, v in kwargs.items()}).to(back)

        return inner

    return wrap


def timed(fn):
    @functools.wraps(fn)
    def inner(*args, **kw):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        out = fn(*args, **kw)
        end.record(), end.synchronize(), times.append(start.elapsed_time(end))
        return out

    return inner


@timed
@on_device()
def weighted_sum(x, scale, bias=None):
    return seen.append((x.is_cuda, bias.is_cuda)) or (x * scale + bias).sum()


out = weighted_sum(torch.ones(4), 3, bias=torch.full((4,), 2.0))
on_device("cpu")(weighted_sum.__wrapped__.__wrapped__)(out, 1, bias=out)
print(weighted_sum.__name__, out.item(), out.is_cuda)
print("timed", times[0] >= 0, len(times), "seen", seen)
