"""Device names are taken apart by startswith, partition, split and regular expressions."""

# answer: same kind True
# answer: index 0 0 0
# answer: starts True
# answer: contains True False
# answer: matched True
# answer: shown True
# answer: rank 3
import re

import torch

DEVICE_RE = re.compile(r"^(?P<kind>cuda|cpu|mps)(?::(?P<index>\d+))?$")


def rank_of(name):
    """Index in a name such as cuda:3; 0 if the name has none, -1 for the host."""
    if not name.startswith("cuda"):
        return -1
    return int(name.split(":")[1]) if ":" in name else 0


args_device = "cuda:0"
kind, _, index = args_device.partition(":")
x = torch.ones(3, device=args_device)

print("same kind", str(x.device).split(":")[0] == kind == x.device.type)
print("index", x.get_device(), x.device.index, int(index))
print("starts", f"{x.device}".startswith("cuda"))
print("contains", "cuda" in str(x.device), "cuda" in str(x.cpu().device))
match = DEVICE_RE.match(str(x.device))
print("matched", match is not None and (match["kind"], match["index"]) == (kind, index))
print("shown", bool(re.search(r"device='cuda:\d+'", repr(x))))
print("rank", rank_of("cuda:3") + rank_of("cuda") + rank_of("cpu") + rank_of(str(x.device)) + 1)
