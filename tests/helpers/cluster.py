"""``isthmus cluster`` in this process, labs of it, and waiting for what other processes do."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from isthmus_cluster.cli import app


def cluster(*words: object) -> tuple[int, str]:
    """Run ``isthmus cluster words``; return status and output."""
    done = CliRunner().invoke(app, [str(each) for each in words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def wait_until(holds: Callable[[], Any], seconds: float = 20) -> Any:
    """Wait until a condition is true; return its value."""
    until = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < until, "not in time"
        time.sleep(0.02)
    return found


@contextmanager
def lab(folder: Path, hosts: int, cards: int, name: str) -> Iterator[Path]:
    """Start a lab in a folder; skips the test where it cannot."""
    if os.geteuid() or not shutil.which("ip") or not shutil.which("tc"):
        pytest.skip("network namespaces need root and iproute2")
    options = ("--hosts", hosts, "--cards", cards, "--name", f"{name}{os.getpid()}", "--folder", folder)
    status, output = cluster("lab", "up", *options)
    if status:
        pytest.skip(output)
    try:
        yield folder
    finally:
        assert cluster("lab", "down", "--folder", folder)[0] == 0
