"""Questions that only CUDA answers: tests for CUDA in front of them stay, and no second one is written."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus_migrate.convert.engine import convert_source

ASKED = "torch.cuda.get_device_capability()"


def _convert(source: str) -> str:
    once = convert_source(f"import torch\n{source}", "a.py").text
    assert convert_source(once, "a.py").text == once
    return once


@pytest.mark.parametrize(
    "source",
    [
        f"a = {ASKED}[0] >= 8 if torch.cuda.is_available() else False\n",
        f"a = torch.cuda.is_available() and {ASKED} < (9, 0)\n",
        "a = torch.cuda.is_available() and torch.cuda.get_device_properties(0).major >= 8\n",
        f"def f():\n    if torch.cuda.is_available():\n        a, b = {ASKED}\n        return a\n    return 0\n",
        f"def f():\n    if not torch.cuda.is_available():\n        return (0, 0)\n    return {ASKED}\n",
        f"def f(x):\n    return x.is_cuda and {ASKED} < (9, 0)\n",
        f'def f(x: torch.Tensor):\n    return x.device.type == "cuda" and {ASKED} < (9, 0)\n',
        "if torch.cuda.is_available():\n    torch.cuda.ipc_collect()\n",
    ],
)
def test_a_test_for_cuda_in_front_of_its_capability_stays(source: str) -> None:
    assert _convert(source) == f"import torch\n{source}"


@pytest.mark.parametrize(
    ("source", "converted"),
    [
        (f"a = {ASKED}[0] >= 8\n", f'a = DEVICE.type == "cuda" and {ASKED}[0] >= 8\n'),
        (
            f"a = {ASKED} >= (8, 0) and {ASKED} < (9, 0)\n",
            f'a = DEVICE.type == "cuda" and {ASKED} >= (8, 0) and {ASKED} < (9, 0)\n',
        ),
        (f"a = not {ASKED} == (8, 0)\n", f'a = not (DEVICE.type == "cuda" and {ASKED} == (8, 0))\n'),
        (f"a = {ASKED} < (8, 0)\n", f'a = ({ASKED} if DEVICE.type == "cuda" else (0, 0)) < (8, 0)\n'),
        (
            f"if torch.cuda.is_available():\n    a = {ASKED}\n    torch.cuda.empty_cache()\nelse:\n    a = (0, 0)\n",
            f'if torch.accelerator.is_available():\n    a = {ASKED} if DEVICE.type == "cuda" else (0, 0)\n',
        ),
    ],
)
def test_a_question_without_one_is_asked_on_cuda(source: str, converted: str) -> None:
    text = _convert(source)
    assert converted in text
    found: dict[str, Any] = {}
    exec(text, found)
    assert found["a"] in (False, True, (0, 0))


@pytest.mark.parametrize(
    ("source", "converted"),
    [
        (f"if n and {ASKED} < (8, 0):\n    a()\n", f'if n and DEVICE.type == "cuda" and {ASKED} < (8, 0):'),
        (f"if {ASKED} < (8, 0):\n    a = 1\n", f'if DEVICE.type == "cuda" and {ASKED} < (8, 0):'),
        (f"a = 1 if {ASKED}[0] < 8 else 2\n", f'a = 1 if DEVICE.type == "cuda" and {ASKED}[0] < 8 else 2'),
        (
            f"def f(x):\n    if {ASKED} < (8, 0):\n        return x @ x\n    return x * x\n",
            f'    if DEVICE.type == "cuda" and {ASKED} < (8, 0):\n        return x @ x\n',
        ),
        (
            f"def f():\n    if {ASKED} < (8, 0):\n        return False\n    return True\n",
            f'    if DEVICE.type != "cuda" or {ASKED} < (8, 0):\n        return False\n',
        ),
        (
            f"def f(n):\n    if n and {ASKED} < (8, 0):\n        raise ValueError\n",
            f'    if n and (DEVICE.type != "cuda" or {ASKED} < (8, 0)):\n',
        ),
    ],
)
def test_an_upper_limit_chooses_a_path_of_cuda_or_refuses_other_devices(source: str, converted: str) -> None:
    assert converted in _convert(source)
