"""Mocks that follow what they steer, and halves of an idiom that are changed together."""

from __future__ import annotations

from pathlib import Path

from isthmus_migrate.convert import project
from isthmus_migrate.source.findings import Severity
from tests.helpers.conversion import convert


def test_a_mock_follows_what_it_steers(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        "import subprocess\n\nimport torch\n\n\ndef count():\n    return torch.cuda.device_count() or 1\n\n\n"
        "def links():\n    if torch.cuda.is_available():\n        _ask()\n\n\n"
        'def _ask():\n    subprocess.run(["nvidia-smi"])\n\n\n'
        "def both():\n    if torch.cuda.is_available():\n        torch.zeros(2).pin_memory()\n    return links()\n"
    )
    (tmp_path / "test_tools.py").write_text(
        "from unittest import mock\n\nimport torch\n\nfrom tools import both, count, links\n\n\n"
        'def test_count():\n    with mock.patch("tools.torch.cuda.device_count", return_value=3):\n'
        "        assert count() == 3\n\n\n"
        "def test_links(there):\n    links()\n\n\n"
        'def there(monkeypatch):\n    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)\n\n\n'
        'def test_both(monkeypatch):\n    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)\n'
        "    both()\n"
    )
    converted = {each.name: each for each in project.convert(tmp_path, project.Request())}
    tests = converted["test_tools.py"]
    assert b'mock.patch("tools.torch.accelerator.device_count", return_value=3)' in tests.after
    ends = [each.severity for each in tests.findings]
    assert ends == [Severity.AUTOMATIC, Severity.NONE, Severity.REVIEW]


def test_the_prefix_that_a_function_cuts_off_is_that_of_the_name_it_makes() -> None:
    source = (
        "def select(device):\n    device = str(device).replace('cuda:', '')\n"
        "    arg = 'cuda:0' if device else 'cpu'\n    return torch.device(arg)\n"
    )
    assert "str(device).replace(f'{DEVICE.type}:', '')" in convert(source).text


def test_what_lightning_is_asked_for_is_listed() -> None:
    source = (
        "from helpers import RunIf\nfrom lightning.fabric.accelerators import CUDAAccelerator\n"
        "n = CUDAAccelerator.auto_device_count()\n"
        "@RunIf(min_cuda_gpus=1)\ndef test_a(): ...\n@RunIf(min_cuda_gpus=2)\ndef test_b(): ...\n"
    )
    found = [each for each in convert(source).findings if each.code == "IM304"]
    assert [(each.line, "and 1 more in this file" in each.message) for each in found] == [
        (4, False),
        (5, True),
    ]
