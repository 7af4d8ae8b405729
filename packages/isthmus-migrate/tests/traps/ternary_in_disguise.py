"""The choice between cuda and cpu is written with tuples, and/or, string products, dicts, next() and a loop."""

# answer: 8 of 8
# answer: 0 of 2
# answer: True
import torch

ok = torch.cuda.is_available()


def by_loop():
    for name in ("cuda", "cpu"):
        if name == "cpu" or torch.cuda.is_available():
            return name


chosen = [
    ("cpu", "cuda")[torch.cuda.is_available()],
    torch.cuda.is_available() and "cuda" or "cpu",
    not torch.cuda.is_available() and "cpu" or "cuda",
    "cuda" * ok or "cpu",
    {True: "cuda", False: "cpu"}[ok],
    ["cpu", "cuda:0"][min(torch.cuda.device_count(), 1)],
    next(d for d, have in [("cuda", ok), ("cpu", True)] if have),
    by_loop(),
]
refused = [("cpu", "cuda")[not torch.cuda.is_available()], torch.cuda.device_count() == 0 and "cuda" or "cpu"]
print(sum(torch.zeros(1, device=d).is_cuda for d in chosen), "of", len(chosen))
print(sum(torch.zeros(1, device=d).is_cuda for d in refused), "of", len(refused))
print(torch.device(chosen[0]) != torch.device(refused[0]))
