"""Effects of a project's other files on the conversion of a file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.migrate.convert import project

MODEL = "import torch\n\n\ndef place(x):\n    return x.cuda()\n"
CONSTANT = '{} = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")'


def _convert(root: Path, files: dict[str, str], target: str = "") -> dict[str, str]:
    """Convert the project; existing files stay."""
    for name, text in files.items():
        (root / name).write_text(text)
    for each in project.convert(root, project.Request(target)):
        each.path.write_bytes(each.after)
    return {path.name: path.read_text() for path in root.glob("*.py")}


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


def test_a_call_that_may_mean_a_method_of_another_file_stays(tmp_path: Path) -> None:
    (tmp_path / "batch.py").write_text(BATCH)
    (tmp_path / "train.py").write_text(TRAIN)
    converted = {each.name: each for each in project.convert(tmp_path, project.Request())}
    assert b"Batch(torch.ones(2).to(DEVICE)).cuda()" in converted["train.py"].after
    (finding,) = converted["train.py"].findings
    assert (finding.code, finding.line) == ("IM101", 4)
    assert finding.message == "may call the method `cuda` of class Batch of batch.py"


def test_a_class_with_a_method_for_any_device_is_converted(tmp_path: Path) -> None:
    batch = f"{BATCH}\n    def to(self, device):\n        return Batch(self.x.to(device))\n"
    converted = _convert(tmp_path, {"batch.py": batch, "train.py": TRAIN})
    assert "Batch(torch.ones(2).to(DEVICE)).to(DEVICE)" in converted["train.py"]
    assert "return Batch(self.x.to(DEVICE))" in converted["batch.py"]
