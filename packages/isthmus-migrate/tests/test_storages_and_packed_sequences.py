"""Conversion of storages, whose ``to`` takes the device by name, and of packed sequences, which have no device."""

from __future__ import annotations

import pytest

from isthmus_migrate.convert.engine import convert_source
from isthmus_migrate.source.findings import Severity

_LOADS = "import functools, torch\n"
_PACKS = "import torch\nfrom torch.nn.utils.rnn import PackedSequence, pack_sequence\n"


@pytest.mark.parametrize(
    ("source", "converted"),
    [
        ("torch.load(b, map_location=lambda s, l: s.cuda() if n else s)\n", "s.to(device=DEVICE) if n"),
        (
            "rank = 0\ntorch.load(b, map_location=lambda s, l: s.cuda(rank) if n else s)\n",
            "s.to(device=torch.device(DEVICE.type, rank)) if n",
        ),
        ("def ml(s, l):\n    return s.cuda(0)\ntorch.load(b, ml)\n", 's.to(device=f"{DEVICE.type}:0")'),
        (
            "def ml(a, s, l):\n    return s.cuda()\ntorch.load(b, map_location=functools.partial(ml, 1))\n",
            "s.to(device=DEVICE)",
        ),
        ("f = lambda s, l: s.cuda() if n else s\noptions = {'map_location': f}\n", "s.to(device=DEVICE)"),
        ("def move(storage):\n    return storage.cuda(non_blocking=True)\n", "to(device=DEVICE, non_blocking="),
        ("class A:\n    def ml(self, s, l):\n        return s.cuda()\n"
         "    def f(self):\n        torch.load(b, map_location=self.ml)\n", "s.to(device=DEVICE)"),
        ("torch.load(b, map_location=lambda s, l: s)\ndef f(s):\n    return s.cuda()\n", "s.to(DEVICE)"),
    ],
)  # fmt: skip
def test_a_storage_takes_its_device_by_name(source: str, converted: str) -> None:
    assert converted in convert_source(_LOADS + source, "a.py").text


@pytest.mark.parametrize(
    ("source", "converted"),
    [
        ("p = pack_sequence([x]).cuda()\np.is_cuda\n", 'p.data.device.type != "cpu"'),
        (
            "def f(x):\n    made = pack_sequence([x])\n    return made.cuda()\nf(y).is_cuda\n",
            "f(y).data.device",
        ),
        ("def f(x: PackedSequence):\n    return x.is_cuda\n", 'x.data.device.type != "cpu"'),
        ("def f(x):\n    return x.is_cuda, x.shape\n", 'x.device.type != "cpu"'),
        ("def f(x: torch.Tensor):\n    return x.is_cuda\n", 'x.device.type != "cpu"'),
        ("x = torch.ones(1).cuda()\nx.is_cuda\n", 'x.device.type != "cpu"'),
    ],
)
def test_a_packed_sequence_is_asked_by_its_data(source: str, converted: str) -> None:
    assert converted in convert_source(_PACKS + source, "a.py").text


def test_what_may_be_a_packed_sequence_is_left() -> None:
    result = convert_source(f"{_PACKS}def f(x):\n    return x.is_cuda\n", "a.py")
    assert [each.severity for each in result.findings] == [Severity.REVIEW]
    assert "x.is_cuda" in result.text
