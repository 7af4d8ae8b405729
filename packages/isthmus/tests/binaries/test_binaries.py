"""The choice of the binaries that fit a version of PyTorch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from isthmus import binaries


def test_the_core_of_this_process_is_that_of_its_pytorch() -> None:
    from isthmus import _C

    found = binaries.find(torch.__version__)
    assert Path(_C.__file__).parent == found.folder
    assert binaries.minor_version(found.torch) == binaries.minor_version(torch.__version__)
    assert binaries.minor_version(torch.__version__) in binaries.versions()
    assert (found.folder / binaries.KERNELS).is_file()


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with binaries for PyTorch 2.9 and 2.10."""
    for version in ("2.9.1", "2.10.0+cpu"):
        folder = tmp_path / binaries.folder_name(version)
        folder.mkdir()
        (folder / binaries.RECORD).write_text(json.dumps({"torch": version, "kernels": "DEFAULT"}))
    monkeypatch.setattr(binaries, "__file__", str(tmp_path / "__init__.py"))
    return tmp_path


@pytest.mark.parametrize("version", ["2.10.0", "2.10.3+cu130", "2.10.0a0+git12ab", "2.10.0.dev20260101"])
def test_patches_nightlies_and_other_builds_of_a_minor_version_fit(built: Path, version: str) -> None:
    assert binaries.find(version) == ("2.10.0+cpu", "DEFAULT", built / "torch_2_10")


@pytest.mark.parametrize("version", ["2.1.0", "2.11.0", "3.10.0"])
def test_another_minor_version_is_refused_with_those_there_are(built: Path, version: str) -> None:
    with pytest.raises(
        binaries.NotBuilt, match=f"^built for PyTorch 2.9 and 2.10; found {version}$"
    ) as found:
        binaries.find(version)
    assert found.value.versions == ["2.9", "2.10"]


def test_nothing_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(binaries.NotBuilt, match=r"^the C\+\+ core is not built$") as found:
        binaries.find("2.13.0")
    assert found.value.versions == []
