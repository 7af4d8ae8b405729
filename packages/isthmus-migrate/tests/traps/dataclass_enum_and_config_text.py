"""The device sits in a dataclass default, in an enum value and in a piece of JSON that must match that enum."""

# answer: True
# answer: GPU True
# answer: CPU False
# answer: True
# answer: 2
import json
from dataclasses import asdict, dataclass, field, replace
from enum import Enum

import torch


class Place(str, Enum):
    CPU = "cpu"
    GPU = "cuda"


@dataclass
class Config:
    width: int = 2
    device: str = "cuda"
    extra: list = field(default_factory=lambda: ["cuda", "cpu"])


def layer(cfg):
    return torch.nn.Linear(cfg.width, cfg.width, device=cfg.device)


cfg = Config()
print(layer(cfg).weight.is_cuda)
for text in ('{"device": "cuda"}', '{"device": "cpu"}'):
    place = Place(json.loads(text)["device"])
    print(place.name, torch.zeros(1, device=place.value).is_cuda)
again = Config(**json.loads(json.dumps(asdict(cfg))))
print(layer(replace(again, width=3)).weight.is_cuda)
print(len({torch.empty(1, device=name).device.type for name in again.extra}))
