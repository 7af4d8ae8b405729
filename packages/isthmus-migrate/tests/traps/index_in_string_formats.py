"""The device string is put together from a rank in five spellings, then taken apart again from a printed device."""

# answer: [True, True, True, True, True]
# answer: True
# answer: True 0
# answer: cpu
# answer: 1
import torch

rank = 0
backend = "cuda"
names = [
    f"cuda:{rank}",
    "cuda:{}".format(rank),
    "cuda:%d" % rank,
    "cuda:" + str(rank),
    ":".join((backend, f"{rank}")),
]
print([torch.zeros(1).to(name).is_cuda for name in names])
placed = {torch.empty(1, device=name).device for name in names}
print(placed == {torch.device("cuda", rank)})

x = torch.ones(2, device=names[0])
printed = str(x.device)
print(printed.startswith("cuda"), int(printed.split(":")[1]))


def host_or_gpu(t):
    return "gpu" if "cuda" in str(t.device) else "cpu"


print(host_or_gpu(x.cpu()))
print(sum(host_or_gpu(t) == "gpu" for t in (x, x.cpu())))
