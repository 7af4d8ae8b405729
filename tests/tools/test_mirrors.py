"""Clones of public repositories, found by name or by a commit."""

import subprocess
from pathlib import Path

import pytest

from tools import mirrors


def test_a_fork_with_the_commit_serves_for_a_repository(tmp_path: Path) -> None:
    fork = tmp_path / "someone+fork/repo"
    fork.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", fork], check=True)
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", fork, *author, "commit", "-q", "--allow-empty", "-m", "c"], check=True)
    commit = mirrors.git(fork, "rev-parse", "HEAD").decode().strip()
    assert mirrors.holding(tmp_path, "owner/project", commit) == fork
    with pytest.raises(FileNotFoundError, match="no clone of owner/project, nor a fork"):
        mirrors.holding(tmp_path, "owner/project", "0" * 40)
    (tmp_path / "owner/project").mkdir(parents=True)
    assert mirrors.holding(tmp_path, "owner/project", commit) == tmp_path / "owner/project"
