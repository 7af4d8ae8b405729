"""Conversion for older versions of PyTorch: what is written for them, and what is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus_migrate.convert.engine import convert_source
from isthmus_migrate.source import versions

SCRIPT = """\
import torch
import torch.distributed as dist
from torch.cuda.amp import autocast, GradScaler

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
x = torch.zeros(2).cuda()
torch.cuda.empty_cache()
torch.cuda.set_device(0)
print(torch.cuda.mem_get_info(), torch.cuda.device_count(), f"{torch.cuda.current_device()}")
dist.init_process_group("nccl")
scaler = GradScaler()
with autocast():
    print(torch.is_autocast_enabled())
try:
    pass
except torch.cuda.OutOfMemoryError:
    pass
if x.is_cuda:
    pass
"""
CONSTANTS = {
    "2.1": 'torch.device("cuda" if torch.cuda.is_available() else "cpu")',
    "2.5": 'torch.device("cuda" if torch.cuda.is_available() else "cpu")',
    "2.6": "torch.accelerator.current_accelerator() if torch.accelerator.is_available() "
    'else torch.device("cpu")',
    "2.7": 'torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")',
}
ALL = ["2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.10"]


@pytest.mark.parametrize("target", ["", "npu"])
@pytest.mark.parametrize("version", ALL)
def test_the_result_needs_no_newer_version_and_converts_to_itself(version: str, target: str) -> None:
    torch = versions.parse(version)
    once = convert_source(SCRIPT, "train.py", target, torch=torch)
    assert versions.minimum(SCRIPT, once.text) <= torch
    again = convert_source(once.text, "train.py", target, torch=torch)
    assert again.text == once.text
    assert not again.changes


@pytest.mark.parametrize(("version", "value"), CONSTANTS.items())
def test_the_device_constant(version: str, value: str) -> None:
    result = convert_source("import torch\nx.cuda()\n", "train.py", torch=versions.parse(version))
    assert result.text == f"import torch\n\nDEVICE = {value}\n\nx.to(DEVICE)\n"


@pytest.mark.parametrize(
    ("version", "target", "line", "after"),
    [
        ("2.8", "", "torch.cuda.empty_cache()", "torch.get_device_module(DEVICE).empty_cache()"),
        ("2.9", "", "torch.cuda.empty_cache()", "torch.accelerator.empty_cache()"),
        ("2.9", "npu", "y = torch.cuda.mem_get_info()", "y = torch.get_device_module(DEVICE).mem_get_info()"),
        ("2.10", "npu", "y = torch.cuda.mem_get_info()", "y = torch.accelerator.get_memory_info()"),
        ("2.3", "npu", "torch.cuda.synchronize()", "getattr(torch, DEVICE.type).synchronize()"),
        ("2.5", "npu", "y = torch.cuda.device_count()", "y = torch.get_device_module(DEVICE).device_count()"),
        ("2.1", "", "torch.cuda.set_device(0)", "    getattr(torch, DEVICE.type).set_device(0)"),
        ("2.5", "", 'dist.init_process_group("nccl")', '"nccl" if torch.cuda.is_available() else "gloo")'),
        ("2.6", "", 'dist.init_process_group("nccl")', "get_default_backend_for_device(DEVICE))"),
        ("2.4", "", "with torch.cuda.amp.autocast(): pass", "with torch.amp.autocast(DEVICE.type, "),
    ],
)
def test_calls_have_a_form_for_the_version(version: str, target: str, line: str, after: str) -> None:
    source = f"import torch\nimport torch.distributed as dist\n{line}\n"
    assert after in convert_source(source, "train.py", target, torch=versions.parse(version)).text


@pytest.mark.parametrize(
    ("version", "target", "line", "why"),
    [
        ("2.2", "npu", "y = torch.cuda.amp.GradScaler()", "torch.amp.GradScaler exists since PyTorch 2.3"),
        ("2.3", "npu", "y = torch.cuda.OutOfMemoryError", "torch.OutOfMemoryError exists since PyTorch 2.4"),
        (
            "2.3",
            "npu",
            "y = torch.is_autocast_enabled()",
            "torch.is_autocast_enabled(device_type) exists since",
        ),
        ("2.5", "npu", 'torch.distributed.init_process_group("nccl")', "exists since PyTorch 2.6"),
        ("2.7", "", "y = torch.cuda.AcceleratorError", "torch.AcceleratorError exists since PyTorch 2.8"),
    ],
)
def test_what_has_no_form_is_left_with_the_reason(version: str, target: str, line: str, why: str) -> None:
    source = f"import torch\n{line}\n"
    result = convert_source(source, "train.py", target, torch=versions.parse(version))
    assert result.text == source
    assert [each.severity.value for each in result.findings if why in each.message] == ["manual"]


@pytest.mark.parametrize(
    "line",
    ["y = torch.cuda.amp.GradScaler()", "y = torch.cuda.OutOfMemoryError", "y = torch.is_autocast_enabled()"],
)
def test_what_has_no_form_stays_where_the_device_is_cuda_or_the_cpu(line: str) -> None:
    source = f"import torch\n{line}\n"
    result = convert_source(source, "train.py", torch=(2, 1))
    assert result.text == source
    assert [each.advice for each in result.findings] == ["stays: PyTorch 2.1 has no other form"]


def test_ddp_needs_a_version_with_its_helpers() -> None:
    source = (Path(__file__).parent / "ddp_scripts" / "functions.py").read_text()
    older = convert_source(source, "train.py", options=["ddp"], torch=(2, 5))
    said = "torch.accelerator.set_device_index exists since PyTorch 2.6"
    assert "DistributedDataParallel" not in older.text
    assert any(said in each.message for each in older.findings)
    assert "DistributedDataParallel" in convert_source(source, "train.py", options=["ddp"], torch=(2, 6)).text


def test_the_oldest_version_is_that_of_the_changed_lines() -> None:
    old = "torch.accelerator.memory_stats()\n"
    assert versions.minimum(old, f"{old}x = torch.amp.GradScaler()\n") == (2, 3)
    assert versions.minimum(old, f"{old}print(1)\n") == ()
    assert versions.minimum("", "DEVICE = torch.accelerator.current_accelerator(check_available=True)") == (
        2,
        7,
    )
    assert versions.minimum("", "import torch as th\nx = th.OutOfMemoryError\n") == (2, 4)
    named = "dist.get_default_backend_for_device(device)\n"
    assert versions.minimum("", f"import torch.distributed as dist\n{named}") == (2, 6)
    assert versions.minimum("", f"from torch import distributed as dist\n{named}") == (2, 6)
    assert (
        versions.minimum("", "x = torch.cuda.Event(), threading.Event(), torch.cuda.OutOfMemoryError\n") == ()
    )


def test_memory_functions_need_a_later_version_on_mps() -> None:
    assert [versions.needed_version(each) for each in ((2, 7), (2, 9), (2, 10), (2, 13))] == [
        "2.7",
        "2.9 (2.13 on MPS)",
        "2.10 (2.13 on MPS)",
        "2.13",
    ]
