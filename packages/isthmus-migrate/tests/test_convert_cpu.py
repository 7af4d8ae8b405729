"""A converted script runs on the CPU only, and on the accelerator."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus_migrate.convert.engine import convert_source
from isthmus_migrate.source.findings import LEFT

SCRIPT = """
import torch

x = torch.ones(4).cuda()
side = torch.cuda.Stream()
done = torch.cuda.Event()
done.record()
with torch.cuda.stream(side):
    y = x * 2
y.record_stream(side)
for each in (x, y): each.record_stream(torch.cuda.current_stream())
torch.cuda.current_stream().synchronize()
name = torch.cuda.get_device_properties(0).name
total = torch.cuda.get_device_properties(0).total_memory
used = torch.cuda.memory_stats()["allocated_bytes.all.current"]
assert torch.cuda.memory_stats().get("never", 0) == 0
with torch.random.fork_rng(devices=[0], device_type="cuda"):
    torch.rand(2)
with torch.random.fork_rng(device_type="cuda"):
    torch.rand(2)
torch.set_autocast_gpu_dtype(torch.float16)
print(name, total > 0, used > 0, torch.get_autocast_dtype("cpu"), sum(y.tolist()))
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("environment", "printed"),
    [
        ({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, "cpu False False torch.bfloat16 8.0"),
        ({}, "Isthmus host chip True True torch.bfloat16 8.0"),
    ],
)
def test_streams_memory_and_generators(tmp_path: Path, environment: dict[str, str], printed: str) -> None:
    file = tmp_path / "script.py"
    result = convert_source(SCRIPT, "script.py")
    assert not any(each.severity in LEFT for each in result.findings)
    file.write_text(result.text)
    ended = subprocess.run(
        [sys.executable, file], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert (ended.stdout.strip(), ended.returncode) == (printed, 0), ended.stderr


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("torch.cuda.Event(enable_timing=True)", "IM116"),
        ("torch.cuda.Stream(device=0)", "IM116"),
        ("properties = torch.cuda.get_device_properties(0)", "IM115"),
    ],
)
def test_calls_that_fail_without_an_accelerator_as_before(line: str, code: str) -> None:
    result = convert_source(f"import torch\n{line}\n", "a.py")
    assert [(each.code, bool(each.edits)) for each in result.findings] == [(code, True)]
    assert line.replace("torch.cuda", "torch.get_device_module(DEVICE)") in result.text
