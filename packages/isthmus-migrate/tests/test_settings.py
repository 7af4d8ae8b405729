"""Configuration files: only a setting that the sources pass to PyTorch as a device or backend is listed."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus_migrate.analyse.engine import analyse
from isthmus_migrate.convert import project
from isthmus_migrate.source.findings import Severity

TRAIN = """\
import torch
import yaml


def setup(backend):
    torch.distributed.init_process_group(backend=backend)


def main(cfg):
    setup(cfg.backend)
    options = yaml.safe_load(open("train.yaml"))
    torch.nn.Linear(2, 2).to(options["train"]["device"])
    print(cfg.vendor)
"""
YAML = """\
backend: nccl  # on one node
vendor: cuda
train: {device: "cuda:0", steps: 3}
# device: cuda
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "train.yaml").write_text(YAML)
    (tmp_path / "train.toml").write_text('[train]\ndevice = "gpu"\nvendor = "gpu"\n')
    (tmp_path / "train.json").write_text('{"train": {"device": "cuda"}, "backend": "gloo"}\n')
    (tmp_path / "data.json").write_text('{"device": "cuda"}' + " " * (1 << 20))
    return tmp_path


EXPECTED = [
    ("train.json", 1, "IM102", '"cuda"'),
    ("train.toml", 2, "IM102", '"gpu"'),
    ("train.yaml", 1, "IM201", '"nccl"'),
    ("train.yaml", 3, "IM102", '"cuda:0"'),
]


def test_settings_are_listed_by_an_analysis(folder: Path) -> None:
    report = analyse(folder, probe=False)
    found = [each for each in report.findings if not each.path.endswith(".py")]
    assert [(each.path, each.line, each.code, each.subject) for each in found] == EXPECTED
    assert {each.severity for each in found} == {Severity.REVIEW}
    assert "passed to torch.distributed.init_process_group(backend=) in train.py:6" in found[2].message
    assert report.files == 1


def test_settings_are_listed_by_a_conversion_and_stay(folder: Path) -> None:
    converted = [each for each in project.convert(folder, project.Request()) if each.name != "train.py"]
    found = sorted((each.path, each.line, each.code) for file in converted for each in file.findings)
    assert found == [each[:3] for each in EXPECTED]
    assert all(each.before == each.after for each in converted)


def test_settings_of_a_project_without_such_uses_are_words(folder: Path) -> None:
    (folder / "train.py").write_text("import torch\n")
    assert not analyse(folder, probe=False).findings
