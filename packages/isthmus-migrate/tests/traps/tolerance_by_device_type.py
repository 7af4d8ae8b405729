"""Tables, a match statement and membership tests are indexed with the type of a tensor's own device."""

# answer: 0.001 1e-06
# answer: fused plain
# answer: gpu host
# answer: [True, False]
# answer: 32
import torch

ATOL = {"cpu": 1e-6, "cuda": 1e-3}
BATCH = dict(cpu=4, cuda=32)


def kernel_for(t):
    table = {"cuda": "fused"}
    return table.get(t.device.type, "plain")


def kind(t):
    match t.device.type:
        case "cuda":
            return "gpu"
        case "cpu":
            return "host"
        case _:
            return "strange"


on_gpu = torch.ones(2, device="cuda")
on_cpu = on_gpu.cpu()
print(ATOL[on_gpu.device.type], ATOL[on_cpu.device.type])
print(kernel_for(on_gpu), kernel_for(on_cpu))
print(kind(on_gpu), kind(on_cpu))
print([t.device.type in ("cuda", "hip") for t in (on_gpu, on_cpu)])
print(BATCH[torch.device("cuda:0").type])
