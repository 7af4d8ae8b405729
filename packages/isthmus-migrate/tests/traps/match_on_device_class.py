"""The device is taken apart by match statements, once with a class pattern and once with string cases."""

# answer: pinned 4
# answer: plain 0
# answer: named gpu
# answer: named host
# answer: named skeleton
import torch


def loader_options(device):
    match device:
        case torch.device(type="cuda", index=None | 0):
            return "pinned", 4
        case torch.device(type="cpu"):
            return "plain", 0
        case torch.device():
            return "other", 1
        case _:
            return "not a device", -1


def label(tensor):
    match tensor.device.type:
        case "cuda" | "hip":
            return "gpu"
        case "mps":
            return "apple"
        case "cpu":
            return "host"
        case "meta":
            return "skeleton"
        case other:
            return "unknown " + str(len(other))


batch = torch.arange(4.0).to("cuda")
print(*loader_options(batch.device))
print(*loader_options(batch.cpu().device))
for tensor in (batch, batch.cpu(), torch.empty(2, device="meta")):
    print("named", label(tensor))
