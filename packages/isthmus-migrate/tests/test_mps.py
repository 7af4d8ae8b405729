"""Functions that ``torch.mps`` lacks are not called in a file that knows MPS, and are reported elsewhere."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from isthmus_migrate.convert.engine import convert_source
from isthmus_migrate.source import mps
from isthmus_migrate.source.cuda_names import NAMES

APART = 'DEVICE.type not in ("cpu", "mps")'
KNOWN = """import torch
device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
x = torch.zeros(2, device=device)
"""


def test_the_names_are_those_of_torch_mps() -> None:
    taken = {
        each.becomes for each in NAMES.values() if each.becomes.count(".") == 1 and "{module}" in each.becomes
    }
    assert {each for each in taken if mps.mps_lacks(each)} == {
        each for each in taken if not hasattr(torch.mps, each.removeprefix("{module}."))
    }


def test_the_names_of_accelerators_exist() -> None:
    names = [each.accelerator for each in NAMES.values() if each.accelerator]
    assert names
    for name in names:
        assert callable(getattr(torch.accelerator, name.removeprefix("torch.accelerator.")))


def test_functions_that_take_no_device_on_mps() -> None:
    for name in mps.WITHOUT_DEVICE:
        assert not inspect.signature(getattr(torch.mps, name)).parameters
    result = convert_source("import torch\ntorch.cuda.synchronize(1)\n", "a.py")
    assert "if torch.accelerator.is_available():\n    torch.accelerator.synchronize(1)\n" in result.text


@pytest.mark.parametrize(
    ("source", "converted"),
    [
        (
            "torch.cuda.set_device(0)\n",
            "if torch.accelerator.is_available():\n    torch.accelerator.set_device_index(0)\n",
        ),
        (
            "torch.cuda.manual_seed_all(3)\n",
            f"if {APART}:\n    torch.get_device_module(DEVICE).manual_seed_all(3)\n",
        ),
        (
            "torch.cuda.manual_seed(3)\n",
            "if torch.accelerator.is_available():\n    torch.get_device_module(DEVICE).manual_seed(3)\n",
        ),
        (
            "name = torch.cuda.get_device_name(0)\n",
            f"name = torch.get_device_module(DEVICE).get_device_name(0) if {APART} else DEVICE.type\n",
        ),
        (
            "if torch.cuda.is_available():\n    torch.cuda.manual_seed_all(3)\n    torch.cuda.empty_cache()\n",
            f"if {APART}:\n    torch.get_device_module(DEVICE).manual_seed_all(3)\n    torch.accelerator.empty",
        ),
        (
            "ok = torch.cuda.is_available() and torch.cuda.is_bf16_supported()\n",
            f"ok = {APART} and torch.get_device_module(DEVICE).is_bf16_supported()\n",
        ),
        (
            "if torch.cuda.is_available():\n    torch.cuda.empty_cache()\n",
            "if torch.accelerator.is_available():\n    torch.accelerator.empty_cache()\n",
        ),
    ],
)
def test_what_mps_lacks_is_not_called_there(source: str, converted: str) -> None:
    text = convert_source(KNOWN + source, "a.py").text
    assert converted in text
    assert convert_source(text, "a.py").text == text
    found: dict[str, Any] = {}
    exec(text, found)
    assert found["DEVICE"].type != "mps"


@pytest.mark.parametrize(
    ("source", "converted"),
    [
        ("torch.cuda.synchronize(device=0)\n", "torch.accelerator.synchronize(0)\n"),
        ("torch.cuda.set_device(0)\n", "torch.accelerator.set_device_index(0)\n"),
        ("a = torch.cuda.current_device()\n", "a = torch.accelerator.current_device_index()\n"),
    ],
)
def test_an_accelerator_that_was_tested_for_is_asked_by_its_own_module(source: str, converted: str) -> None:
    text = convert_source(f"import torch\nif torch.cuda.is_available():\n    {source}", "a.py").text
    assert text == f"import torch\nif torch.accelerator.is_available():\n    {converted}"
    exec(text, {})


def test_a_call_with_keywords_that_are_not_shown_keeps_its_function() -> None:
    text = convert_source(
        "import torch\nif torch.cuda.is_available():\n    torch.cuda.synchronize(**k)\n", "a.py"
    ).text
    assert "torch.get_device_module(DEVICE).synchronize(**k)" in text


def test_the_limit_is_said_in_other_files() -> None:
    source = "import torch\nprint(torch.cuda.get_device_name(0))\ntorch.cuda.empty_cache()\n"
    said = [each.advice for each in convert_source(source, "a.py").findings]
    assert said[0].endswith("get_device_name, which MPS lacks")
    assert "MPS" not in said[1]


def test_a_test_in_front_of_what_every_accelerator_has_is_for_any() -> None:
    source = f"{KNOWN}if torch.cuda.is_available():\n    torch.cuda.set_device(0)\n"
    converted = "if torch.accelerator.is_available():\n    torch.accelerator.set_device_index(0)\n"
    assert converted in convert_source(source, "a.py").text
