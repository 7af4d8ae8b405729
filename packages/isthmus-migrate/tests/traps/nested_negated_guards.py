"""Guards are negated, chained as a == "cuda" == b, nested, and left by early returns and ternaries."""

# answer: staged through host
# answer: staged through host
# answer: direct same chip
# answer: host only
# answer: rejected meta
# answer: ternary 64 8
# answer: sum 12.0
import torch


def plan(src, dst):
    if src.device.type not in ("cuda", "cpu") or not dst.device.type in {"cpu", "cuda"}:
        return "rejected " + (src.device.type if src.device.type == "meta" else "device")
    if not (src.device.type == "cuda" == dst.device.type):
        if src.device.type != "cuda" and not dst.is_cuda:
            return "host only"
        return "staged through host"
    if src.device != dst.device:
        return "direct other chip"
    return "direct same chip"


def reduce(x, device):
    assert device.type == "cuda", "needs a GPU"
    assert not x.device.type != device.type
    if x.device.type != "cuda":
        return -1.0
    else:
        if not x.is_cuda:
            return -2.0
    return x.sum().item()


host, chip = torch.ones(3, 4), torch.ones(3, 4).cuda()
print(plan(host, chip))
print(plan(chip, host))
print(plan(chip, chip.clone()))
print(plan(host, host.clone()))
print(plan(torch.empty(2, device="meta"), chip))
print(
    "ternary", *(64 if t.device.type == "cuda" else 8 if t.device.type == "cpu" else 0 for t in (chip, host))
)
print("sum", reduce(chip, torch.device("cuda")))
