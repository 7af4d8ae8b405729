"""Rules of other packages, found by their entry points: listed, selected, and applied by both commands."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from isthmus_migrate.rules import registry
from tests.helpers.command import isthmus
from tools.repository import ROOT

GUIDE = ROOT / "docs" / "guides" / "migrate-convert.md"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a folder with the rule of the guide as an installed package."""
    blocks = re.findall(r"```python runnable\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    rule = next(block for block in blocks if "class UseGpu" in block).partition("\n\n\nresult =")[0]
    folder = tmp_path / "site"
    (folder / "my_package-1.dist-info").mkdir(parents=True)
    (folder / "my_package.py").write_text(rule)
    (folder / "my_package-1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: my-package\nVersion: 1\n"
    )
    (folder / "my_package-1.dist-info" / "entry_points.txt").write_text(
        "[isthmus_migrate.rules]\nmy-rule = my_package:UseGpu\n"
    )
    calls = "my_library.use_gpu()\nmy_library.use_gpu(1)\n"
    (tmp_path / "train.py").write_text(f"import torch\nimport my_library\n{calls}")
    return folder


def run(site: Path, *arguments: object) -> tuple[int, str, str]:
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH", ""), str(site))))
    done = isthmus("migrate", *arguments, PYTHONPATH=path)
    return done.returncode, done.stdout, done.stderr


def test_a_rule_of_another_package_is_applied(site: Path, tmp_path: Path) -> None:
    status, patch, said = run(site, "convert", "--select", "MY001", tmp_path / "train.py")
    assert status == 0
    assert "+my_library.use(DEVICE)\n" in patch
    assert "MY001 use-gpu: 1 change in 1 file\n" in said
    assert "train.py:4: manual: use_gpu takes options of CUDA; pass those of the device\n" in said
    _, found, _ = run(site, "analyse", "--no-probe", "--select", "MY", tmp_path / "train.py")
    assert "train.py:3:1: MY001 automatic: use_gpu uses CUDA; becomes use(DEVICE)\n" in found


@pytest.mark.parametrize("command", ["analyse", "convert"])
def test_a_rule_that_does_not_load_is_one_line(site: Path, tmp_path: Path, command: str) -> None:
    (site / "my_package.py").write_text("import absent\n")
    status, _, said = run(site, command, tmp_path / "train.py")
    assert status != 0
    assert said == "isthmus: entry point my-rule = my_package:UseGpu: No module named 'absent'\n"


@pytest.mark.parametrize("chosen", [{"names": ["IM118"]}, {"names": ["amp-imports"]}, {"ignore": ["IM131"]}])
def test_calls_of_amp_and_their_imports_change_together(chosen):
    codes = {rule.code for rule in registry.select(**chosen)}
    assert {"IM118", "IM131"} & codes in ({"IM118", "IM131"}, set())
