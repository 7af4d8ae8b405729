"""Triton kernels of the user's own under ``isthmus run``: in Triton's interpreter on the host chip."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.children import start_module

pytest.importorskip("triton")
SCRIPTS = Path(__file__).parents[1] / "scripts"


def job(script: str, **environment: str) -> tuple[dict[str, Any], str]:
    """The last line of JSON and the messages of a script under ``isthmus run``."""
    child = start_module("isthmus", "run", str(SCRIPTS / script), ISTHMUS_HOST_MEMORY="1GiB", **environment)
    out, err = child.communicate(timeout=300)
    assert child.returncode == 0, err[-8000:]
    return json.loads([line for line in out.splitlines() if line.startswith("{")][-1]), err


def test_kernels_agree_with_pytorch_and_say_once_that_they_are_interpreted():
    found, messages = job("triton_kernels.py", ISTHMUS_HOST_STRICT="1")
    assert found["add"] == 0 and found["bfloat16"] == 0
    assert found["softmax"] < 1e-4 and found["matmul"] < 1e-5 and found["library"] < 1e-6
    assert found["hooks"] == [32, 32]
    assert "inline assembly" in found["refused"]
    assert found["target"] == ["cuda", 80] and found["device"] == "cuda:0"
    assert messages.count("Triton kernels run in Triton's interpreter on the host chip: slow") == 1
