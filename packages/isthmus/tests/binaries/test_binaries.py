"""The choice of the binaries that fit a version of PyTorch."""

from __future__ import annotations

import json
import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
import torch

import isthmus
from isthmus import binaries
from isthmus_common.pytorch import folder_name, minor_version

KERNELS = binaries.find(torch.__version__).folder / binaries.KERNELS


def test_the_core_of_this_process_is_that_of_its_pytorch() -> None:
    from isthmus import _C

    found = binaries.find(torch.__version__)
    assert Path(_C.__file__).parent == found.folder
    assert minor_version(found.torch) == minor_version(torch.__version__)
    assert minor_version(torch.__version__) in binaries.versions()
    assert (found.folder / binaries.KERNELS).is_file()


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with binaries for PyTorch 2.9 and 2.10."""
    for version in ("2.9.1", "2.10.0+cpu"):
        folder = tmp_path / folder_name(version)
        folder.mkdir()
        (folder / binaries.RECORD).write_text(json.dumps({"torch": version, "kernels": "DEFAULT"}))
    monkeypatch.setattr(binaries, "__file__", str(tmp_path / "__init__.py"))
    return tmp_path


@pytest.mark.parametrize(
    "version",
    ["2.10.0", "2.10.3+cu130", "2.10.0a0+git12ab", "2.10.0.dev20260101", "2.10a0+git12ab", "2.10rc1"],
)
def test_patches_nightlies_and_other_builds_of_a_minor_version_fit(built: Path, version: str) -> None:
    assert binaries.find(version) == ("2.10.0+cpu", "DEFAULT", built / "torch_2_10")


@pytest.mark.parametrize("version", ["2.1.0", "2.11.0", "3.10.0"])
def test_another_minor_version_is_refused_with_those_there_are(built: Path, version: str) -> None:
    with pytest.raises(
        binaries.NotBuilt, match=f"^built for PyTorch 2.9 and 2.10; found {version}; run `isthmus build`$"
    ) as found:
        binaries.find(version)
    assert found.value.versions == ["2.9", "2.10"]


def test_nothing_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(
        binaries.NotBuilt, match=r"^the C\+\+ core is not built in \S+; run `isthmus build`$"
    ) as found:
        binaries.find("2.13.0")
    assert found.value.versions == []


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '{"torch": "2.9.1"}', "\x00\x01"])
def test_a_damaged_record_is_named(built: Path, text: str) -> None:
    (built / "torch_2_9" / binaries.RECORD).write_text(text)
    with pytest.raises(
        binaries.Damaged, match=r"torch_2_9/build\.json: not a record of a build; run `isthmus build`"
    ):
        binaries.find("2.9.0")


@pytest.mark.parametrize("version", ["2.10.0", "2.10rc1"])
def test_binaries_that_another_isthmus_built_are_named(built: Path, version: str) -> None:
    """`isthmus build` adds a folder that no later wheel replaces."""
    folder = built / "torch_2_10"
    record = json.loads((folder / binaries.RECORD).read_text())
    for made_by in (isthmus.__version__, "0.0.9"):
        (folder / binaries.RECORD).write_text(json.dumps({**record, "isthmus": made_by}))
        if made_by == isthmus.__version__:
            assert binaries.find(version).folder == folder
    with pytest.raises(
        binaries.Damaged, match=r"torch_2_10: built by Isthmus 0\.0\.9; this is .*; run `isthmus build`"
    ):
        binaries.find(version)


def test_folders_of_other_names_are_none_of_the_binaries(built: Path) -> None:
    for name in ("torch_2_13.bak", "torch_old", ".torch_2_9"):
        (built / name).mkdir()
        (built / name / binaries.RECORD).write_text("{}")
    assert binaries.versions() == ["2.9", "2.10"]


@pytest.mark.parametrize("name", ["core", "kernels"])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.99])
def test_a_library_that_is_cut_off_is_named_before_it_is_opened(built: Path, name: str, share: float) -> None:
    whole = built / "torch_2_9"
    name = binaries.KERNELS if name == "kernels" else f"_C{EXTENSION_SUFFIXES[0]}"
    library = whole / name
    library.write_bytes(KERNELS.read_bytes())
    assert binaries.find("2.9.0").folder == whole
    os.truncate(library, int(share * library.stat().st_size))
    with pytest.raises(binaries.Damaged, match=f"{name}: cut off; run `isthmus build`"):
        binaries.find("2.9.0")
