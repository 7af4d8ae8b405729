"""Classes carry a label called cuda for a registry and a scoreboard; one of them also has a real device attribute."""

# answer: ['c', 'e', 'r']
# answer: 7
# answer: FusedNorm
# answer: True
# answer: False
import torch

REGISTRY = {}


def register(cls):
    REGISTRY[cls.kind] = cls
    return cls


@register
class EagerNorm:
    kind = "eager"
    cuda = 3
    device = torch.device("cpu")


@register
class RefNorm:
    kind = "reference"
    cuda = 4
    device = torch.device("cpu")


@register
class FusedNorm:
    kind = "cuda"
    cuda = 0
    device = torch.device("cuda")


print(sorted(kind[0] for kind in REGISTRY))
print(sum(cls.cuda for cls in REGISTRY.values()))
key = min(REGISTRY, key=len)  # the shortest label
print(REGISTRY[key].__name__)
print(torch.zeros(1, device=REGISTRY[key].device).is_cuda)
print(torch.zeros(1, device=REGISTRY["eager"].device).is_cuda)
