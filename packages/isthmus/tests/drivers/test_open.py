"""Opening a driver: an external one works like the host chip, an invalid one is refused in one clear line."""

import ctypes
import re
import subprocess
from pathlib import Path

import pytest

from tests.helpers.children import output, run
from tests.helpers.outside_driver import HOST, build


def test_an_outside_driver_runs(tmp_path: Path) -> None:
    text = output(
        "import torch, isthmus; print(torch.ones(3, device='chip').sum().item(), isthmus.status().path)",
        ISTHMUS_DRIVER=build(tmp_path, ""),
    )
    assert text.split()[0] == "3.0" and text.endswith("liboutside.so")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ("table.stream_create = 0;", "lacks the mandatory function stream_create; "),
        ("table.copy = 0; table.event_record = 0;", "lacks the mandatory functions copy, event_record; "),
        ("table.version = 2u << 16;", "implements interface version 2.0"),
        ("table.struct_size = 64;", "lacks the mandatory function"),
        (
            "table.virtual_map = 0;",
            'has the group "virtual memory" in part: virtual_granularity and virtual_map',
        ),
        ("table.host_window = 0;", "declares a delegate but has no host_window"),
        ("return 0;", "does not support interface version 1"),
    ],
)
def test_a_wrong_table_is_refused_by_name(tmp_path: Path, edit: str, message: str) -> None:
    library = build(tmp_path, edit)
    result = run("import torch; print(torch.chip.device_count())", ISTHMUS_DRIVER=library)
    assert result.returncode == 0 and result.stdout.strip() == "0"
    assert message in result.stderr and library in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_library_that_is_not_a_driver_is_refused(tmp_path: Path) -> None:
    library = tmp_path / "libnothing.so"
    subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", str(library)], check=True)
    result = run("import torch; print(torch.chip.device_count())", ISTHMUS_DRIVER=str(library))
    assert result.stdout.strip() == "0" and "does not export isthmus_driver_get" in result.stderr


def test_a_driver_that_cannot_start_leaves_no_device(tmp_path: Path) -> None:
    library = build(
        tmp_path,
        "table.initialize = fail_to_start; table.device_count = cannot_count_yet; table.last_error = reason;",
    )
    script = """
import torch
print(torch.chip.device_count(), torch.chip.is_available())
try:
    torch.ones(2, device="chip")
except RuntimeError as error:
    print(str(error).splitlines()[0])
"""
    text = output(script, ISTHMUS_DRIVER=library)
    assert text.splitlines()[0] == "0 False"
    assert "the board is not powered; switch it on" in text.splitlines()[1]


def test_the_host_chip_does_not_depend_on_pytorch() -> None:
    symbols = subprocess.run(["nm", "-D", str(HOST)], capture_output=True, text=True, check=True).stdout
    defined = [line.split()[-1] for line in symbols.splitlines() if " T " in line]
    assert "isthmus_driver_get" in defined
    assert not [line for line in symbols.splitlines() if "torch" in line or "c10" in line]
    needed = subprocess.run(["ldd", str(HOST)], capture_output=True, text=True, check=True).stdout
    assert "libc.so" in needed and not re.search(r"lib(torch|c10)", needed)  # addresses may contain c10
    assert ctypes.CDLL(str(HOST)).isthmus_driver_get is not None
