"""A script with a switch for CUDA and one for MPS obeys both after the conversion, on a Mac and elsewhere."""

from __future__ import annotations

import types

import pytest
import torch

from isthmus_migrate.convert.engine import convert_source
from isthmus_migrate.source.findings import Severity

SCRIPT = """import torch


def choose(args):
    use_cuda = not args.no_cuda and torch.cuda.is_available()
    use_mps = not args.no_mps and torch.backends.mps.is_available()
    if use_cuda:
        return torch.device("cuda")
    return torch.device("mps" if use_mps else "cpu")
"""


@pytest.mark.parametrize(
    ("accelerator", "no_cuda", "no_mps", "chosen"),
    [
        ("mps", False, False, "mps"),
        ("mps", False, True, "cpu"),
        ("mps", True, False, "mps"),
        ("xpu", False, True, "xpu"),
        ("xpu", True, False, "cpu"),
        (None, False, False, "cpu"),
    ],
)
def test_each_switch_is_obeyed(
    monkeypatch: pytest.MonkeyPatch, accelerator: str | None, no_cuda: bool, no_mps: bool, chosen: str
) -> None:
    found = torch.device(accelerator) if accelerator else None
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: found)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: found is not None)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: accelerator == "mps")
    names: dict[str, types.FunctionType] = {}
    exec(convert_source(SCRIPT, "train.py").text, names)
    assert names["choose"](types.SimpleNamespace(no_cuda=no_cuda, no_mps=no_mps)).type == chosen


def test_a_second_conversion_changes_nothing() -> None:
    once = convert_source(SCRIPT, "train.py").text
    assert convert_source(once, "train.py").text == once


PREDICATE = """import torch, triton


@triton.jit
def kernel(x): ...


def supported(x):
    return x.is_cuda and x.ndim == 2


def f(x):
    if supported(x):
        kernel[(1,)](x)
    return x
"""


def test_a_function_that_answers_for_a_kernel_stays_a_test_for_cuda() -> None:
    assert "return x.is_cuda and x.ndim == 2" in convert_source(PREDICATE, "a.py").text
    portable = PREDICATE.replace("kernel[(1,)](x)", "x = x + 1")
    assert 'return x.device.type != "cpu" and x.ndim == 2' in convert_source(portable, "a.py").text


@pytest.mark.parametrize(
    "replaced",
    [
        'with mock.patch("torch.cuda.is_available", return_value=False):\n    f()\n',
        '@patch("torch.cuda.is_available", lambda: True)\ndef test(): ...\n',
        'mock.patch.object(torch.cuda, "is_available")\n',
        'monkeypatch.setattr(torch.cuda, "is_available", lambda: False)\n',
        'monkeypatch.setattr("torch.cuda.is_available", lambda: False)\n',
    ],
)
def test_a_test_that_replaces_cuda_s_answer_is_listed(replaced: str) -> None:
    found = convert_source(f"import torch\n{replaced}", "test_a.py").findings
    assert [(each.severity, each.subject) for each in found] == [(Severity.REVIEW, "torch.cuda.is_available")]
    assert "torch.accelerator.is_available and its DEVICE" in found[0].advice


def test_a_choice_of_two_devices_in_the_files_own_constant_is_the_constant() -> None:
    choice = 'DEVICE = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")'
    text = convert_source(f"import torch\n{choice}\ny = torch.ones(2).cuda()\n", "a.py").text
    assert text.count("DEVICE =") == 1 and "ACCELERATOR" not in text and text.endswith(".to(DEVICE)\n")
