"""Effects of a project's other files on the conversion of a file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from isthmus_migrate.convert import project
from isthmus_migrate.source.findings import LEFT, Severity

MODEL = "import torch\n\n\ndef place(x):\n    return x.cuda()\n"
CONSTANT = '{} = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")'


def _convert(root: Path, files: dict[str, str], target: str = "") -> dict[str, str]:
    """Convert the project; existing files stay."""
    for name, text in files.items():
        (root / name).write_text(text)
    for each in project.convert(root, project.Request(target)):
        each.path.write_bytes(each.after)
    return {path.name: path.read_text() for path in root.glob("*.py")}


@pytest.mark.full
def test_a_name_that_a_module_would_get_by_star_is_not_defined(tmp_path: Path) -> None:
    main = "DEVICE = 'meter'\nfrom model import *\n\nassert DEVICE == 'meter'\n"
    converted = _convert(tmp_path, {"model.py": MODEL, "main.py": main})
    assert CONSTANT.format("ACCELERATOR") in converted["model.py"]
    subprocess.run([sys.executable, "main.py"], cwd=tmp_path, check=True)
    assert _convert(tmp_path, {}) == converted
    later = _convert(tmp_path, {"later.py": MODEL})
    assert CONSTANT.format("ACCELERATOR") in later["later.py"]


@pytest.mark.parametrize("target", ["", "npu"])
def test_the_constant_of_an_earlier_conversion_keeps_its_name(tmp_path: Path, target: str) -> None:
    _convert(tmp_path, {"model.py": MODEL, "main.py": "from model import *\n"}, target)
    later = _convert(tmp_path, {"later.py": MODEL}, target)
    assert "\nDEVICE = torch." in later["model.py"]
    assert "\nDEVICE = torch." in later["later.py"]


def test_a_name_of_another_module_is_free_where_nothing_is_imported_by_star(tmp_path: Path) -> None:
    converted = _convert(tmp_path, {"model.py": MODEL, "main.py": "DEVICE = 'meter'\n"})
    assert CONSTANT.format("DEVICE") in converted["model.py"]


BATCH = """class Batch:
    def __init__(self, x):
        self.x = x

    def cuda(self):
        return Batch(self.x.cuda())
"""
TRAIN = "import torch\nfrom batch import Batch\n\nBatch(torch.ones(2).cuda()).cuda()\n"


def test_a_call_of_a_method_of_another_file_stays(tmp_path: Path) -> None:
    (tmp_path / "batch.py").write_text(BATCH)
    (tmp_path / "train.py").write_text(TRAIN)
    converted = {each.name: each for each in project.convert(tmp_path, project.Request())}
    assert b"Batch(torch.ones(2).to(DEVICE)).cuda()" in converted["train.py"].after
    known, unknown = converted["train.py"].findings[0], converted["batch.py"].findings[0]
    assert (known.code, known.severity, known.line) == ("IM101", Severity.NONE, 4)
    assert known.message == "calls the method `cuda` of class Batch"
    assert (unknown.code, unknown.severity) == ("IM101", Severity.REVIEW)
    assert unknown.message == "may call the method `cuda` of class Batch"


def test_a_file_that_does_not_use_pytorch_is_not_changed(tmp_path: Path) -> None:
    """``net.py`` does: it has PyTorch's names from another module."""
    files = {
        "plain.py": 'def place(x, device="cuda"):\n    return x.cuda() if x.is_cuda else x.to(device)\n',
        "train.py": "import torch\nfrom plain import place\n\nplace(torch.ones(2).cuda())\n",
        "common.py": "import torch\n",
        "net.py": "from common import *\n\ntorch.ones(2).cuda()\n",
    }
    converted = _convert(tmp_path, files)
    assert converted["plain.py"] == files["plain.py"]
    assert "place(torch.ones(2).to(DEVICE))" in converted["train.py"]
    assert "torch.ones(2).to(DEVICE)" in converted["net.py"]
    found = {each.name: each.findings for each in project.convert(tmp_path, project.Request())}
    assert {each.severity for each in found["plain.py"]} <= LEFT
    assert len(found["plain.py"]) == 3


CONFIG = 'device = "cuda"\nname = "cuda"\n'


@pytest.mark.parametrize(
    ("start", "device", "name"),
    [
        ("from .config import *", "device", "name"),
        ("from .config import device, name as word", "device", "word"),
        ("from . import config", "config.device", "config.name"),
        ("from package import config as c", "c.device", "c.name"),
        ("import package.config", "package.config.device", "package.config.name"),
    ],
)
def test_a_string_of_another_module_is_followed(tmp_path: Path, start: str, device: str, name: str) -> None:
    use = f"{start}\nimport torch\n\nx = torch.ones(2, device={device})\nprint({name}, {device} == 'cuda')\n"
    (tmp_path / "package").mkdir()
    for path, text in {"__init__.py": "", "config.py": f"import torch\n{CONFIG}", "use.py": use}.items():
        (tmp_path / "package" / path).write_text(text)
    converted = {each.name: each for each in project.convert(tmp_path, project.Request())}
    assert converted["package/config.py"].after.decode().endswith('device = DEVICE.type\nname = "cuda"\n')
    assert (
        f"print({name}, {device} == DEVICE.type and {device} != 'cpu')"
        in converted["package/use.py"].after.decode()
    )


SHARED = """import torch
from torch.cuda import synchronize
from torch.cuda.amp import autocast
from apex.optimizers import FusedAdam

synchronize()
autocast()
FusedAdam(p)
"""


@pytest.mark.parametrize(
    ("use", "stays"),
    [
        ("from shared import synchronize, autocast, FusedAdam\n", True),
        ("from shared import *\n", True),
        ("import shared\n\nshared.synchronize(), shared.autocast, shared.FusedAdam\n", True),
        ("import shared\n", False),
    ],
)
def test_an_import_that_another_file_uses_stays(tmp_path: Path, use: str, stays: bool) -> None:
    after = _convert(tmp_path, {"shared.py": SHARED, "use.py": use})["shared.py"]
    for line in SHARED.splitlines()[1:4]:
        assert (line in after) == stays
    assert "torch.get_device_module(DEVICE).synchronize" in after
    assert "torch.amp.autocast(DEVICE.type" in after or "from torch.amp import autocast" in after
    assert "torch.optim.AdamW(p" in after


ENCODED = [
    ("crlf", "\r\n", "utf-8", ""),
    ("mark", "\n", "utf-8-sig", ""),
    ("latin", "\n", "latin-1", "# -*- coding: latin-1 -*-"),
    ("cp1251", "\r\n", "cp1251", "# coding: cp1251"),
]


@pytest.mark.parametrize(("name", "end", "encoding", "declared"), ENCODED)
def test_only_changed_bytes_change(tmp_path: Path, name: str, end: str, encoding: str, declared: str) -> None:
    letter = "\u0436" if encoding == "cp1251" else "\u00e9"
    lines = [
        f"# {letter}",
        "import torch",
        "",
        f"x = torch.ones(2).cuda()  # {letter}",
        f"y = '{letter}'   ",
        "",
    ]
    before = end.join([declared, *lines] if declared else lines).encode(encoding)
    (tmp_path / "train.py").write_bytes(before)
    (converted,) = project.convert(tmp_path, project.Request())
    definition = CONSTANT.format("DEVICE")
    after = before.replace(b".cuda()", b".to(DEVICE)")
    after = after.replace(f"import torch{end}".encode(), f"import torch{end * 2}{definition}{end}".encode())
    assert (converted.before, converted.after) == (before, after)
