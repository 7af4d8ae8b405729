"""Device strings that are cut or searched, and the guards behind tests of them."""

from __future__ import annotations

import pytest

from isthmus_migrate.convert.engine import convert_source
from isthmus_migrate.source.findings import Severity

_START = 'import torch\ndevice = "cuda:0" if torch.cuda.is_available() else "cpu"\n'
_END = "x = torch.ones(1, device=device)\n"


def test_a_slice_has_as_many_characters_as_the_type_in_use() -> None:
    source = f'{_START}gpu = device[:4] == "cuda"\nsame = device[0:3] == "cuda"\n{_END}'
    result = convert_source(source, "a.py")
    assert 'gpu = device[:len(DEVICE.type)] == DEVICE.type != "cpu"\n' in result.text
    assert 'same = device[0:3] == "cuda"\n' in result.text
    (left,) = (each for each in result.findings if not each.edits)
    assert (left.line, left.code, left.severity) == (4, "IM119", Severity.MANUAL)


@pytest.mark.parametrize(
    ("test", "converted"),
    [
        ('device.startswith("cuda")', 'device.startswith(DEVICE.type) and DEVICE.type != "cpu"'),
        ('"cuda" in str(device)', 'DEVICE.type in str(device) and DEVICE.type != "cpu"'),
    ],
)
def test_what_is_behind_a_test_of_a_device_string_needs_no_guard(test: str, converted: str) -> None:
    result = convert_source(f"{_START}if {test}:\n    torch.cuda.synchronize()\n{_END}", "a.py")
    assert f"if {converted}:\n    torch.accelerator.synchronize()\n" in result.text
