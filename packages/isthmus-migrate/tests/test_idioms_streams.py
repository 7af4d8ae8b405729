"""Streams and events, tables of devices and backends, and lists of the devices that a function accepts."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch

from isthmus_migrate.convert import log, project
from isthmus_migrate.convert.engine import convert_source
from isthmus_migrate.source.findings import Severity

TIMED = """import torch

start = torch.cuda.Event(enable_timing=True)
start.record(torch.cuda.current_stream(device))
"""
KNOWS_MPS = 'place = torch.device("mps")\n'


def test_events_are_those_of_the_devices_module() -> None:
    text = convert_source(TIMED, "a.py").text
    assert "start = torch.get_device_module(DEVICE).Event(enable_timing=True)\n" in text
    assert "start.record(torch.get_device_module(DEVICE).current_stream(device))\n" in text
    torch.cpu.Event().record()
    with pytest.raises(TypeError):
        torch.cpu.Event(enable_timing=True)  # type: ignore[call-arg]
    assert list(inspect.signature(torch.mps.Event.record).parameters) == ["self"]


def test_the_log_marks_what_mps_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.py").write_text(TIMED + KNOWS_MPS)
    log.print_log(project.convert(tmp_path, project.Request(), processes=1), "to change")
    assert "  a.py:3, 4 (not on MPS)\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "is_said"),
    [
        ("p = torch.cuda.get_device_properties(0)\n", True),
        ("t = torch.cuda.get_device_properties(0).total_memory\n", False),  # guarded
        ("s = torch.cuda.Stream()\n", True),
        ("e = torch.cuda.Event()\n", False),
    ],
)
def test_a_project_that_knows_mps_is_told_what_fails_there(source: str, is_said: bool) -> None:
    (found,) = convert_source(f"import torch\n{KNOWS_MPS}{source}", "a.py").changes
    assert ("which MPS lacks" in found.advice) is is_said


@pytest.mark.parametrize(
    ("table", "given"),
    [
        ('{torch.device("cuda"): dist.Backend.NCCL, torch.device("cpu"): dist.Backend.GLOO}', "device"),
        ('{"cpu": "gloo", "cuda": "nccl"}', "device.type"),
    ],
)
def test_a_look_up_of_the_backend_becomes_that_of_the_device(table: str, given: str) -> None:
    source = f"import torch\nimport torch.distributed as dist\n\n\ndef start(device):\n    return {table}[{given}]\n"
    if "Backend" not in table:
        source = source.replace("return ", "backend = ") + "    dist.init_process_group(backend)\n"
    text = convert_source(source, "a.py").text
    assert f" dist.get_default_backend_for_device({given})\n" in text
    assert "DEVICE" not in text and table not in text
    assert convert_source(text, "a.py").text == text


@pytest.mark.parametrize(
    "source",
    [
        'backends = {"cuda": "nccl", "cpu": "gloo"}\ndist.init_process_group(backends[device.type])\n',
        'dist.init_process_group({"cuda": "nccl", "cpu": "gloo", "xpu": "ccl"}[device.type])\n',
        'dist.init_process_group({torch.device("cuda"): "nccl"}.get(device, "gloo"))\n',
    ],
)
def test_another_table_of_backends_is_left_whole(source: str) -> None:
    source = f"import torch\nimport torch.distributed as dist\n\ndevice = torch.zeros(1).device\n{source}"
    result = convert_source(source, "a.py")
    assert result.text == source
    assert [each.severity for each in result.findings] == [Severity.MANUAL]
    assert "instead of the table" in result.findings[0].advice


@pytest.mark.parametrize(("name", "is_device"), [("accelerator", True), ("kind", False)])
def test_a_list_that_refuses_other_devices_is_to_be_reviewed(name: str, is_device: bool) -> None:
    source = f"""import torch


def start({name}="auto"):
    allowed = {{"cpu", "gpu", "cuda", "auto"}}
    if {name} not in allowed:
        raise ValueError({name})
"""
    (found,) = convert_source(source, "a.py").findings
    assert (found.severity, found.line) == (Severity.REVIEW, 5)
    assert ("a device may be looked for among words like it" in found.message) is is_device
