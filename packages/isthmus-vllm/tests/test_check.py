"""`isthmus vllm check`, and where the plugin is silent; no vLLM is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

import isthmus_vllm
from isthmus_vllm import check, cli, versions


@pytest.mark.parametrize("found", ["0.32.0", "0.33.0", "0.33.1+empty"])
def test_supported_versions_are_taken(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "installed", lambda: found)
    assert versions.reason_against_installed() == ""


@pytest.mark.parametrize("found", ["0.31.0", "0.34.0", "1.0", ""])
def test_other_versions_are_named_with_the_remedy(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "installed", lambda: found)
    reason = versions.reason_against_installed()
    assert (found or "unknown") in reason
    assert "install 0.32 or 0.33" in reason


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_vllm_the_command_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert isthmus_vllm.platform() is None
    assert list(check.examine()) == []  # `isthmus doctor` has nothing to say
    assert cli.main(["check"]) == 1
    assert "vLLM is not installed" in capsys.readouterr().out


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
@pytest.mark.parametrize(
    ("driver", "status", "text"),
    [("host", 0, "serves on chip"), ("none", 1, "does not use the chip"), ("numpy", 0, "serves on chip")],
)
def test_the_command_asks_vllm(driver: str, status: int, text: str) -> None:
    command = [sys.executable, "-m", "isthmus", "vllm", "check"]
    found = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "ISTHMUS_DRIVER": driver}
    )
    assert (found.returncode, text in found.stdout) == (status, True), found.stdout + found.stderr
