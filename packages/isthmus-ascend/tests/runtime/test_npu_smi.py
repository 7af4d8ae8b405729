"""npu-smi, read as public programs read it."""

import os
import re
import subprocess

import pytest

from isthmus_ascend import npu_smi
from isthmus_ascend.environment import COMMANDS, variables
from isthmus_ascend.npu_smi import UsageError, answer
from isthmus_ascend.npus import Npu, Process, npus
from isthmus_cluster.monitor.npu_smi import parse
from tests.helpers.children import ROOT

GIB = 1 << 30
TABLE = re.compile(r"\|\s*\d+(?:\s+\d+)?\s+\|\s+[\w:.]+\s+\|\s+(\d+)\s+\d+\s*/\s*\d+\s+(\d+)\s*/\s*(\d+)")


def use(monkeypatch: pytest.MonkeyPatch, name: str, series: str, count: int = 2) -> None:
    """Let npu-smi find these NPUs; the second has a process."""
    made = [
        Npu(
            device,
            name,
            series,
            24,
            30,
            device * 16 * GIB,
            64 * GIB,
            (Process(71, "python", 16 * GIB),) * device,
        )
        for device in range(count)
    ]
    monkeypatch.setattr(npu_smi, "npus", lambda: made)


def field(lines: list[str], name: str) -> str:
    """Return the value of the first line with this name, "" without one."""
    found = (line.split(":")[-1].strip() for line in lines if name in " ".join(line.split()))
    return next(found, "")


@pytest.mark.parametrize(
    ("name", "series", "soc"),
    [
        ("910B2", "910B", "ascend910b2"),
        ("910_9391", "910_93", "ascend910_9391"),
        ("310P3", "310P", "ascend310p3"),
        ("950", "950", "ascend950"),
    ],
)
def test_a_build_finds_the_product(monkeypatch: pytest.MonkeyPatch, name: str, series: str, soc: str) -> None:
    # The setup.py of vLLM Ascend asks for the board first, and for its chip where the board has no name.
    use(monkeypatch, name, series)
    number = field(answer(["info", "-l"]), "NPU ID")
    board = answer(["info", "-t", "board", "-i", number])
    if not field(board, "Chip Name"):
        board = answer(["info", "-t", "board", "-i", number, "-c", "0"])
    chip, kind, npu = (field(board, each) for each in ("Chip Name", "Chip Type", "NPU Name"))
    found = kind + chip if kind else f"{chip}_{npu}"
    assert found.lower().removesuffix("_na") == soc


@pytest.mark.parametrize(("series", "places"), [("910B", ["00", "10"]), ("910_93", ["00", "01"])])
def test_processes_are_bound_by_chip(monkeypatch: pytest.MonkeyPatch, series: str, places: list[str]) -> None:
    # The CPU binding of vLLM Ascend reads the table so.
    use(monkeypatch, "910B2", series)
    header, *rows = [re.split(r"\s{2,}", line.strip()) for line in answer(["info", "-m"])]
    assert header == ["NPU ID", "Chip ID", "Chip Logic ID", "Chip Name"]
    assert [row[0] + row[1] for row in rows] == places and [row[2] for row in rows] == ["0", "1"]
    lines = answer(["info"])
    start = next(index for index, line in enumerate(lines) if "Process id" in line)
    users = [line.strip("|").split("|")[0].split() for line in lines[start + 1 :] if line.startswith("| ")]
    assert [user for user in users if user[0].isdigit()] == [[*places[1]]]
    last = [line.split()[-1] for line in answer(["info", "-t", "topo"]) if line.startswith("NPU")]
    assert last == [",".join(map(str, sorted(os.sched_getaffinity(0))))] * 2


def test_use_of_memory_and_cores_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "910B2", "910B")
    usages = answer(["info", "-t", "usages", "-i", "1"])
    assert (field(usages, "HBM Capacity(MB)"), field(usages, "HBM Usage Rate(%)")) == ("65536", "25")
    assert field(usages, "Aicore Usage Rate(%)") == "30"
    assert field(answer(["info", "-t", "common", "-i", "1", "-c", "0"]), "Aicore Count") == "24"
    assert field(answer(["info", "-i", "1", "-t", "health"]), "Health") == "OK"
    assert field(answer(["info", "-t", "memory", "-i", "0"]), "HBM Capacity(MB)") == "65536"
    assert "simulated" in field(answer(["info", "-t", "product", "-i", "0"]), "Product Type")
    assert TABLE.findall("\n".join(answer(["info"]))) == [("30", "0", "65536"), ("30", "16384", "65536")]


@pytest.mark.parametrize(("name", "series"), [("910B2", "910B"), ("910_9391", "910_93"), ("310P3", "310P")])
def test_isthmus_monitors_the_table(monkeypatch: pytest.MonkeyPatch, name: str, series: str) -> None:
    use(monkeypatch, name, series)
    first, second = parse("\n".join(answer(["info"])))
    assert (first.index, first.memory_used, first.memory_total) == (0, 0, 64 * GIB)
    assert (second.index, second.memory_used, second.utilization) == (1, 16 * GIB, 0.3)
    assert [each.pid for each in second.processes] == [71] and second.power_w is None
    assert len({len(line) for line in answer(["info"])}) == 1


def test_lists_of_npus_count_their_chips(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "910_9391", "910_93", 3)
    counts = [line.split()[-1] for line in answer(["info", "-l"]) if "Count" in line]
    assert counts == ["2", "2", "1"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("info -t bord -i 0", "unknown type: bord; expected board, usages"),
        ("info -t board", "-t board needs -i NPU"),
        ("info -t board -i", "-i needs a value"),
        ("info -t board -i 7", "no NPU 7; 2 available, from 0"),
        ("info -t usages -i 0 -c 4", "no chip 4 of NPU 0; 1 available"),
        ("info -x", "unknown argument: -x"),
        ("info -i 0", "unknown arguments: info -i 0"),
        ("set -t reset", "unknown command: set -t reset"),
    ],
)
def test_wrong_arguments_are_refused(monkeypatch: pytest.MonkeyPatch, arguments: str, problem: str) -> None:
    use(monkeypatch, "910B2", "910B")
    with pytest.raises(UsageError, match=re.escape(problem)):
        answer(arguments.split())


def test_the_program_prints_the_table_and_its_processes() -> None:
    from tests.runtime.runtime import acl

    acl.aclrtSetDevice(0)
    address = acl.result_of("aclrtMalloc", 1 << 20, 0)
    environment = {**os.environ, **variables(), "PYTHONPATH": str(ROOT)}
    script = "npu-smi info; npu-smi -v; npu-smi info -t board -i 99 || echo $?"
    ended = subprocess.run(
        ["sh", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    acl.aclrtFree(address)
    assert re.search(rf"\| 0 +0 +\| {os.getpid()} ", ended.stdout), ended.stdout
    assert "npu-smi version: isthmus" in ended.stdout and ended.stdout.endswith("\n2\n")
    assert ended.stderr.startswith("npu-smi: no NPU 99;") and ended.stderr.count("\n") == 1
    assert (COMMANDS / "npu-smi").stat().st_mode & 0o111


def test_the_state_is_that_of_the_runtime() -> None:
    npu = npus()[0]
    assert npu.name == "910B2" and npu.series == "910B" and npu.cores == 24
    assert 0 <= npu.used <= npu.total and 0 <= npu.utilization <= 100
