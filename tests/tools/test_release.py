"""make release: conditions of a release, the version and its section, sums. Building wheels is tools/wheel.py's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import release, wheel
from tools.repository import ROOT

CHANGELOG = "# Changelog\n\n## Unreleased\n\n- New.\n\n## 0.1.0, 2026-01-02\n\nThe first.\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "VERSION").write_text("0.1.0\n")
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(root: Path, *words: str) -> None:
    name = ("-c", "user.name=Isthmus", "-c", "user.email=isthmus@example.org")
    subprocess.run(["git", *name, *words], cwd=root, check=True)


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "Change")


def test_a_release_is_started_then_ready(tree: Path) -> None:
    release.start(tree, "0.2.0")
    with pytest.raises(release.NotReady, match="not clean"):
        release.check(tree)
    commit(tree)
    assert release.check(tree) == "0.2.0"
    known = release.sections((tree / "CHANGELOG.md").read_text())
    assert known == {"0.2.0": "- New.", "0.1.0": "The first."}


@pytest.mark.parametrize(
    ("version", "reason"), [("0.1.0", "has a section"), ("two", "no version"), ("v0.2.0", "no version")]
)
def test_a_version_is_refused(tree: Path, version: str, reason: str) -> None:
    with pytest.raises(release.NotReady, match=reason):
        release.start(tree, version)
    assert (tree / "CHANGELOG.md").read_text() == CHANGELOG


def test_what_is_not_in_a_section_is_not_released(tree: Path) -> None:
    with pytest.raises(release.NotReady, match="under 'Unreleased'"):
        release.check(tree)


def test_a_version_without_a_section_is_not_released(tree: Path) -> None:
    release.start(tree, "0.2.0")
    (tree / "VERSION").write_text("0.3.0\n")
    commit(tree)
    with pytest.raises(release.NotReady, match=r"no section for 0\.3\.0"):
        release.check(tree)


def test_a_tagged_version_is_not_released_again(tree: Path) -> None:
    release.start(tree, "0.2.0")
    commit(tree)
    git(tree, "tag", "v0.2.0")
    with pytest.raises(release.NotReady, match="exists"):
        release.check(tree)


def test_sums_are_those_of_sha256sum(tmp_path: Path) -> None:
    wheels = [tmp_path / name for name in ("b.whl", "a.whl")]
    for path in wheels:
        path.write_text(path.name)
    release.write_sums(wheels, tmp_path)
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", release.SUMS], cwd=tmp_path, check=True)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout of git, but its files")
def test_a_wheel_is_built_from_tracked_files_only(tmp_path: Path) -> None:
    copied = wheel.copy_tracked(tmp_path / "source")
    names = {path.relative_to(copied) for path in copied.rglob("*") if not path.is_dir()}
    assert Path("packages/isthmus/setup.py") in names
    assert not [name for name in names if name.suffix == ".so"]
    for package in (copied / "packages").iterdir():
        assert (package / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
