"""Generated pages and files are current."""

from __future__ import annotations

import pytest
import torch

from tools import docs
from tools.repository import ROOT

# Pages of names and schemas of the version of PyTorch that CI installs.
PINNED = f"torch=={torch.__version__.partition('+')[0]}\n" in (ROOT / "constraints.txt").read_text()


@pytest.mark.skipif(not PINNED, reason="the pages are those of the version in constraints.txt")
@pytest.mark.parametrize("generator", docs.GENERATORS)
def test_generated_files_are_current(generator: str) -> None:
    assert not list(docs.stale(generator)), "run `make docs`"


def test_check_names_stale_files_and_writes_nothing(tmp_path, monkeypatch, capsys) -> None:
    page = tmp_path / "page.md"
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    monkeypatch.setattr(
        docs, "stale", lambda generator: {page: "text"} if generator == docs.GENERATORS[0] else {}
    )
    assert docs.main(["--check"]) == 1
    assert capsys.readouterr().out == "stale: page.md\n"
    assert not page.exists()
    assert docs.main([]) == 0
    assert page.read_text() == "text"
