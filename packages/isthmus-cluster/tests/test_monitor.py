"""``isthmus cluster monitor``: sources, hosts that do not answer, table, CSV, metrics, nothing left behind."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from isthmus_cluster import agents as agents_of_hosts
from isthmus_cluster import inventory, ports, remote
from isthmus_cluster.errors import ClusterError
from isthmus_cluster.monitor import cli, npu_smi, reports, sources, table
from isthmus_cluster.monitor.card import LOST, OK, WARNING, Card, Process, Report, SourceError, decode, encode
from isthmus_cluster.monitor.metrics import CONTENT_TYPE, metrics
from isthmus_cluster.monitor.nvml import Nvml
from isthmus_cluster.monitor.reports import WAITING, Reports
from isthmus_cluster.monitor.server import serve
from tests.helpers import children
from tests.helpers.cluster import cluster, lab, wait_until
from tests.helpers.host_driver import start_script

MIB = 1 << 20
HOLD = "d = Driver(); d.initialize(); d.allocate(3 * MIB, 1); print('held', flush=True); input()"

ATLAS_800 = """
+------------------------------------------------------------------------------------------------+
| npu-smi 23.0.rc2.b090            Version: 23.0.rc2.b090                                        |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B1               | OK            | 327.1       54                0    / 0             |
| 0                         | 0000:C1:00.0  | 57          0    / 0          64293/ 65536         |
+===========================+===============+====================================================+
...
+===========================+===============+====================================================+
| 7     910B1               | Alarm         | 451.6       76                0    / 0             |
| 0                         | 0000:42:00.0  | 68          0    / 0          64114/ 65536         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 0       0                 | 2441447       | python                   | 59618                   |
+===========================+===============+====================================================+
...
+===========================+===============+====================================================+
| 7       0                 | 2441454       | my job                   | 59802                   |
+===========================+===============+====================================================+
"""
TWO_CHIPS = """
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
| 4     Ascend910           | OK            | 169.5       38                0    / 0             |
| 0     8                   | 0000:9D:00.0  | 0           0    / 0          3131 / 65536         |
| 4     Ascend910           | Critical      | -           NA                0    / 0             |
| 1     9                   | 0000:9F:00.0  | NA          0    / 0          0    / 0             |
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
| No running processes found in NPU 4                                                            |
"""
DUO = """
| NPU     Name              | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |
| Chip    Device            | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |
| 2       310P3             | OK              | NA           41                0     / 0             |
| 0       0                 | 0000:04:00.0    | 3            1698 / 21527                            |
| 2       310P3             | UNKNOWN         | NA           NA                                      |
| 1       1                 | NA              | NA           0    / 0                                |
"""


monitor = partial(cluster, "monitor")


# ---- npu-smi


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program npu-smi; returns the file that it prints."""
    program, printed = tmp_path / "npu-smi", tmp_path / "table.txt"
    program.write_text(f"#!/bin/sh\ncat {printed}\n")
    program.chmod(0o750)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("ISTHMUS_DRIVER", "none")
    return printed


def test_npu_smi_is_found_and_read(smi: Path) -> None:
    smi.write_text(ATLAS_800)
    status, output = monitor("--once")
    head, first, second = (line.split("\t") for line in output.splitlines())
    assert (status, head) == (3, table.HEAD)
    assert first[1:] == ["0", "910B1", "OK", "327", "54", "57", "64293 / 65536", "2441447 python 59618"]
    assert second[1:4] == ["7", "910B1", "Warning: npu-smi: Alarm"]
    assert second[-1] == "2441454 my job 59802"


def test_npu_smi_without_a_table_is_an_error_of_the_host(smi: Path) -> None:
    smi.write_text("dcmi module initialize failed. ret is -8005\n")
    status, output = monitor("--once", "--json")
    (report,) = json.loads(output)
    assert (status, report["cards"]) == (3, [])
    assert report["error"].endswith("no table of NPUs: dcmi module initialize failed. ret is -8005")


def test_two_chips_of_an_npu() -> None:
    first, second = npu_smi.parse(TWO_CHIPS)
    assert first == Card(8, "Ascend910", OK, "", 169.5, 38, 3131 * MIB, 65536 * MIB, 0, ())
    assert second == Card(9, "Ascend910", LOST, "npu-smi: Critical", processes=())


def test_a_table_without_hbm_and_processes() -> None:
    first, second = npu_smi.parse(DUO)
    assert first == Card(0, "310P3", OK, "", None, 41, 1698 * MIB, 21527 * MIB, 0.03)
    assert second == Card(1, "310P3", LOST, "npu-smi: UNKNOWN")


@pytest.mark.parametrize(
    "text", ["", "|", "| 0 |\n| 0 | 0 |", "npu-smi: command not found", "| 0 | 1 | 2 | 3 |"]
)
def test_what_is_no_table_has_no_cards(text: str) -> None:
    assert npu_smi.parse(text) == []


def test_chips_without_a_physical_id_are_counted() -> None:
    text = TWO_CHIPS.replace("0     8 ", "0       ").replace("1     9 ", "1       ")
    assert [card.index for card in npu_smi.parse(text)] == [0, 1]


# ---- NVML


class NvmlError(Exception):
    pass


def nvml(**functions: Any) -> SimpleNamespace:
    """The part of pynvml that is used: one card, of which nothing but the name is supported."""

    def refuse(*_: object) -> None:
        raise NvmlError("Not Supported")

    names = "MemoryInfo UtilizationRates PowerUsage Temperature TotalEccErrors RemappedRows"
    names += " ComputeRunningProcesses GraphicsRunningProcesses"
    found: dict[str, Any] = {f"nvmlDeviceGet{name}": refuse for name in names.split()}
    found |= {
        "NVMLError": NvmlError,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: b"H200",
    }
    constants = ["NVML_TEMPERATURE_GPU", "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC"]
    return SimpleNamespace(**found | dict.fromkeys(constants, 0) | functions)


def nvml_card(monkeypatch: pytest.MonkeyPatch, **functions: Any) -> Card:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(**functions))
    (card,) = Nvml()()
    return card


def test_what_nvml_does_not_support_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert nvml_card(monkeypatch) == Card(0, "H200")


def test_nvml_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    card = nvml_card(
        monkeypatch,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=5, total=9),
        nvmlDeviceGetPowerUsage=lambda handle: 651_500,
        nvmlDeviceGetTemperature=lambda handle, sensor: 61,
        nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=97, memory=3),
        nvmlDeviceGetTotalEccErrors=lambda handle, kind, period: 2,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [
            SimpleNamespace(pid=os.getpid(), usedGpuMemory=4)
        ],
        nvmlDeviceGetGraphicsRunningProcesses=lambda handle: [
            SimpleNamespace(pid=1 << 30, usedGpuMemory=None)
        ],
    )
    name = Path("/proc/self/comm").read_text().strip()
    processes = (Process(os.getpid(), name, 4), Process(1 << 30, "", None))
    expected = Card(0, "H200", WARNING, "2 uncorrectable memory errors", 651.5, 61, 5, 9, 0.97, processes)
    assert card == expected


def test_a_card_that_nvml_has_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(index: int) -> None:
        raise NvmlError("GPU is lost")

    card = nvml_card(monkeypatch, nvmlDeviceGetHandleByIndex=lost)
    assert (card.health, card.reason, card.memory_used) == (LOST, "NVML: GPU is lost", None)


def test_nvml_that_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise NvmlError("Driver Not Loaded")

    with pytest.raises(SourceError, match=r"^NVML: Driver Not Loaded; see whether nvidia-smi works$"):
        nvml_card(monkeypatch, nvmlInit=fail)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(SourceError, match=r"^NVIDIA cards: install the package nvidia-ml-py$"):
        sources.find("nvml")


# ---- hosts that do not answer


def hosts(*names: str) -> inventory.Inventory:
    entries = [
        {"name": name, "address": f"127.0.0.{number}", "cards": 1} for number, name in enumerate(names, 1)
    ]
    return inventory.parse({"hosts": entries}, "test")


def test_hosts_that_do_not_answer_do_not_delay_others(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(0, "chip", processes=(Process(1, "python", 2),))
    once, error = f"echo '{encode([card], '')}'", f"echo '{encode([], 'NVML: Driver Not Loaded')}'"
    repeated = "while {}; do read -t 0.05 _; test $? -gt 128 || exit; done"
    scripts = {
        "well": repeated.format(once),
        "silent": f"echo Welcome; echo '{{}}'; {once}; read _",
        "mute": "read _",
        "ended": f"{once}; echo 'connection closed by node3' >&2; exit 255",
        "broken": repeated.format(error),
    }
    monkeypatch.setattr(remote, "command", lambda host, _: ["bash", "-c", scripts[host.name]])
    monkeypatch.setattr(reports, "_SHORTEST_SILENCE_S", 0.5)

    def errors() -> list[str]:
        found.update(running.poll(0.1))
        return [re.sub(r"for \d+ s", "for N s", report.error) for report in found.values()]

    found: dict[str, Report] = {}
    closed = "no report for N s: connection closed by node3"
    expected = ["", "no report for N s", WAITING, closed, "NVML: Driver Not Loaded"]
    with Reports(hosts(*scripts), interval=0.05) as running:
        assert wait_until(lambda: errors() == expected), found
        processes = [host.agent.process for host in running._hosts.values() if host.agent]
    assert all(process.returncode is not None for process in processes)
    assert [report.cards for report in found.values()] == [(card,), (card,), (), (card,), ()]
    assert found["well"].age < 0.5 < found["silent"].age
    first, second, third, *_ = table.rows(found)
    assert third[:4] == ("mute", "-", "-", WAITING)
    assert first[:4] == ("well", "0", "chip", "OK")
    assert second[:4] == ("silent", "-", "-", f"Lost: {found['silent'].error}")
    assert table.summary(found) == "1 of 5 hosts · 1 card"


@pytest.mark.parametrize(
    "wrong",
    [
        '"health": "weird"',
        '"power_w": "x"',
        '"power_w": NaN',
        '"utilization": "1"',
        '"memory_used": 1.5',
        '"memory_used": 1' + "0" * 400,
        '"index": null',
        '"processes": [{"pid": true, "name": "", "memory": null}]',
        '"processes": {"pid": 1}',
        '"processes": ' + "[" * 100_000,
    ],
    ids=lambda text: text[:24],
)
def test_a_report_with_a_wrong_value_is_ignored(wrong: str) -> None:
    line = encode([Card(0, "chip")], "")
    assert decode(line.encode()) == ((Card(0, "chip"),), "")
    name = wrong.partition(":")[0]
    assert decode(re.sub(rf"{name}: [^,}}]+", lambda _: wrong, line, count=1).encode()) is None


def test_texts_of_a_report_are_printable() -> None:
    line = encode([Card(0, "a\x1b[2J", processes=(Process(1, "b\ud800\n", None),))], "c\r")
    cards, error = decode(line.encode()) or ((), "")
    assert (cards[0].name, cards[0].processes, error) == ("a [2J", (Process(1, "b  ", None),), "c ")


def test_an_agent_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        f"test -e {tmp_path}/again || {{ touch {tmp_path}/again; exit 1; }}; echo '{encode([], '')}'; read _"
    )
    monkeypatch.setattr(remote, "command", lambda host, _: ["sh", "-c", script])
    monkeypatch.setattr(reports, "_RESTART_S", 0.05)
    with Reports(hosts("a")) as running:
        assert wait_until(lambda: running.poll(0.1)["a"].error.endswith("the agent was ended"))
        assert wait_until(lambda: not running.poll(0.1)["a"].error)


def test_output_without_a_line_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "command", lambda host, _: ["cat", "/dev/zero"])
    monkeypatch.setattr(agents_of_hosts, "_LONGEST", 1 << 20)
    with Reports(hosts("a")) as running:
        expected = "no report for 0 s: more than 1 MiB of output without a line end"
        assert wait_until(lambda: running.poll(0.05)["a"].error == expected)


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    inventory.write(hosts("a"), path)
    status, output = monitor("--once", "--inventory", path, "--python", tmp_path / "python")
    assert status == 3
    assert f"Lost: no report for 0 s: {tmp_path / 'python'}: No such file or directory" in output


def test_cards_of_the_inventory_that_are_missing() -> None:
    first, second = sources.add_unreported([Card(1, "chip", processes=())], [0, 1])
    assert (first.index, first.health, first.reason) == (0, LOST, "this host does not have the card")
    assert second == Card(1, "chip", processes=())


# ---- metrics

_SAMPLE = re.compile(r"(?P<name>[a-z_:]+)\{(?P<labels>.*)\} (?P<value>-?[\d.e+]+)")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Series:
    """Parse the text format strictly: HELP, TYPE and samples of a metric together, labels escaped, series unique."""
    series: Series = {}
    seen: list[str] = []
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            seen.append(line.split()[2])
        elif line.startswith("# TYPE "):
            assert line == f"# TYPE {seen[-1]} gauge"
        else:
            sample = _SAMPLE.fullmatch(line)
            assert sample and sample["name"] == seen[-1], line
            labels, at = [], 0
            while at < len(sample["labels"]):
                label = _LABEL.match(sample["labels"], at)
                assert label, line
                value = re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), label[2])
                labels.append((label[1], value))
                at = label.end()
            key = sample["name"], tuple(labels)
            assert key not in series
            series[key] = float(sample["value"])
    assert len(set(seen)) == len(seen)
    return series


def test_metrics() -> None:
    strange = 'a"b\\c\nd'
    cards = (
        Card(
            0,
            strange,
            power_w=327.1,
            memory_used=1 << 40,
            processes=(Process(7, strange, 3), Process(8, "", None)),
        ),
        Card(1, "chip", WARNING, "stopped", utilization=0.0),
    )
    found = parsed(
        metrics({"a": Report("a", 1.0, 0.25, cards, ""), "b": Report("b", 1.0, 9.0, cards, "no report")})
    )
    a, b = (("host", "a"),), (("host", "b"),)
    first, second = (*a, ("card", "0")), (*a, ("card", "1"))
    assert found == {
        ("isthmus_host_up", a): 1,
        ("isthmus_host_up", b): 0,
        ("isthmus_host_report_age_seconds", a): 0.25,
        ("isthmus_host_report_age_seconds", b): 9,
        ("isthmus_card_info", (*first, ("name", strange))): 1,
        ("isthmus_card_info", (*second, ("name", "chip"))): 1,
        ("isthmus_card_health", first): 0,
        ("isthmus_card_health", second): 1,
        ("isthmus_card_power_watts", first): 327.1,
        ("isthmus_card_memory_used_bytes", first): 1 << 40,
        ("isthmus_card_utilization_ratio", second): 0,
        ("isthmus_card_processes", first): 2,
        ("isthmus_process_memory_bytes", (*first, ("pid", "7"), ("name", strange))): 3,
    }


def test_server() -> None:
    with serve(0, "127.0.0.1", {"/": lambda: ("text/plain", "ä")}) as address:
        with urllib.request.urlopen(f"{address}/?x=1", timeout=10) as answer:
            assert (answer.read().decode(), answer.headers["Content-Type"]) == ("ä", "text/plain")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address}/other", timeout=10)
        port = address.rpartition(":")[2]
        status, output = monitor("--once", "--port", port)
    assert status == 1
    assert (
        output == f"isthmus: 127.0.0.1 port {port}: Address already in use; give another --port or --bind\n"
    )
    with (
        pytest.raises(ClusterError, match=r"^192.0.2.1 port 0: .*; give another --port or --bind$"),
        serve(0, "192.0.2.1", {}),
    ):
        pass


# ---- on a terminal


def test_what_is_not_ok_comes_first_in_a_table_that_is_too_long() -> None:
    cards = tuple(Card(index, "chip", LOST if index == 30 else OK) for index in range(40))
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(cli._screen({"a": Report("a", 1.0, 0.0, cards, "")}, height=20))
    head, titles, first, second, *_ = console.export_text().splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d · 1 of 1 host · 40 cards · 1 not OK · Ctrl-C ends", head)
    assert titles.split()[:2] == ["host", "card"]
    assert (first.split()[1], second.split()[1]) == ("30", "0")


# ---- this machine


@pytest.fixture
def account(tmp_path: Path) -> dict[str, str]:
    """Host chips of their own."""
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    return {
        "XDG_RUNTIME_DIR": str(runtime),
        "ISTHMUS_DRIVER": "host",
        "ISTHMUS_HOST_DEVICES": "2",
        "ISTHMUS_HOST_MEMORY": "64MiB",
    }


@pytest.fixture
def holder(account: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process with 3 MiB of card 1, of another capacity than that of the monitor's environment."""
    process = start_script(HOLD, **account | {"ISTHMUS_HOST_MEMORY": "128MiB"})
    try:
        assert process.stdout and process.stdout.readline() == "held\n", (
            process.stderr and process.stderr.read()
        )
        yield process
    finally:
        process.kill()
        process.communicate()


def agents(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_whole_command(tmp_path: Path, account: dict[str, str], holder: subprocess.Popen[str]) -> None:
    file = tmp_path / "cards.csv"
    arguments = ["--interval", "0.2", "--port", "0", "--csv", str(file), "--json"]
    running = children.start_module("isthmus", "cluster", "monitor", *arguments, **account)
    try:
        line = running.stderr.readline()
        found = re.fullmatch(r"isthmus: metrics at (http://127\.0\.0\.1:(\d+)/metrics)\n", line)
        assert found, line + running.stderr.read()
        assert int(found[2]) not in [each.port for each in ports.listeners()], "on loopback only"

        def series() -> Series:
            with urllib.request.urlopen(found[1], timeout=10) as answer:
                assert answer.headers["Content-Type"] == CONTENT_TYPE
                text = answer.read().decode()
            return parsed(text) if text else {}

        def value(name: str) -> float | None:
            """The value of a metric of card 1, or of the host."""
            cards = [("card", "1"), ("host", os.uname().nodename)]
            return next(
                (value for (each, labels), value in series().items() if each == name and labels[-1] in cards),
                None,
            )

        # Allocated in pieces of 2 MiB.
        assert wait_until(lambda: value("isthmus_card_memory_used_bytes") == 4 * MIB)
        assert value("isthmus_card_memory_total_bytes") == 128 * MIB
        assert value("isthmus_card_processes") == 1
        assert value("isthmus_card_power_watts") is None, "the host chip does not measure it"
        assert value("isthmus_card_health") == 0
        (process,) = [dict(labels) for name, labels in series() if name == "isthmus_process_memory_bytes"]
        assert (process["card"], process["pid"]) == ("1", str(holder.pid))

        holder.send_signal(signal.SIGSTOP)
        assert wait_until(lambda: value("isthmus_card_health") == 1)
        holder.send_signal(signal.SIGCONT)
        assert wait_until(lambda: value("isthmus_card_health") == 0)
        holder.kill()
        assert wait_until(lambda: value("isthmus_card_processes") == 0)

        (agent,) = agents(running.pid)
        assert value("isthmus_host_up") == 1
        os.kill(agent, signal.SIGKILL)
        assert wait_until(lambda: value("isthmus_host_up") == 0)
        running.send_signal(signal.SIGINT)
        printed, error = running.communicate(timeout=20)
        assert (running.returncode, error) == (0, "")
    finally:
        running.kill()
    last = json.loads(printed.splitlines()[-1])
    assert last[0]["error"].endswith("the agent was ended")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    with file.open() as stream:
        lines = list(csv.DictReader(stream))
    assert list(lines[0]) == table.COLUMNS
    assert lines[0]["card"] == "0", "no row while the agent starts"
    held = next(line for line in lines if line["processes"])
    assert (held["card"], held["memory_used"], held["power_w"], held["health"]) == (
        "1",
        str(4 * MIB),
        "",
        "OK",
    )
    assert re.fullmatch(rf"{holder.pid}:\S+:{4 * MIB}", held["processes"])
    assert any(line["reason"] == f"stopped by a signal: process {holder.pid}" for line in lines)
    assert (lines[-1]["card"], lines[-1]["health"]) == ("", LOST)


def test_once(tmp_path: Path, account: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in account.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "cards.csv"
    for _ in range(2):
        status, output = monitor("--once", "--csv", file)
        rows = [line.split("\t") for line in output.splitlines()]
        assert (status, [row[1] for row in rows]) == (0, ["card", "0", "1"])
        assert rows[2][4:6] == ["-", "-"] and rows[2][-2:] == ["0 / 64", "none"]
        assert rows[2][6].isdecimal(), "the utilization is that of the machine's processors"
    assert len(file.read_text().splitlines()) == 1 + 2 * 2
    monkeypatch.setenv("ISTHMUS_HOST_DEVICES", "0")
    status, output = monitor("--once", "--source", "driver")
    assert status == 3 and "Lost: no cards on this host" in output
    file.write_text("time,host\n")
    status, output = monitor("--once", "--csv", file)
    assert (status, output.count("\n")) == (1, 1) and "not a file of this command" in output


def test_a_csv_file_keeps_its_mode(tmp_path: Path) -> None:
    given = tmp_path / "cards.csv"
    given.touch(mode=0o600)
    table.CsvFile(given)
    table.CsvFile(tmp_path / "new.csv")
    assert [stat.S_IMODE(each.stat().st_mode) for each in (given, tmp_path / "new.csv")] == [0o600, 0o640]


def test_agents_end_with_the_command(account: dict[str, str]) -> None:
    running = children.start_module("isthmus", "cluster", "monitor", "--json", "--interval", "60", **account)
    try:
        assert running.stdout.readline()
        (agent,) = agents(running.pid)
    finally:
        running.kill()
    assert wait_until(lambda: not Path(f"/proc/{agent}").exists())


# ---- a lab


@pytest.mark.full
def test_hosts_of_a_lab(tmp_path: Path) -> None:
    started: list[subprocess.Popen[bytes]] = []
    with lab(tmp_path / "lab", 2, 2, "m") as folder:
        path = folder / "cluster.yaml"
        try:
            code = f"from tests.helpers.host_driver import *\n{HOLD}"
            for host in inventory.read(path).hosts:
                child = subprocess.Popen(
                    remote.command(
                        host, [sys.executable, "-c", code], host.environment | {"LOCAL_RANK": "1"}
                    ),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    cwd=children.ROOT,
                    env={**os.environ, "PYTHONPATH": str(children.ROOT)},
                )
                started.append(child)
                assert child.stdin
                child.stdin.write(remote.environment_line(host.environment | {"LOCAL_RANK": "1"}))
                child.stdin.flush()
            for process in started:
                assert process.stdout and process.stdout.readline() == b"held\n"
            assert cluster("lab", "fault", "host2", "card1", "stop", "--folder", folder) == (0, "")

            def seen() -> list[tuple[str, int, str, list[int]]]:
                found = json.loads(monitor("--once", "--json", "--inventory", path)[1])
                return [
                    (
                        report["host"],
                        card["index"],
                        card["health"],
                        [each["pid"] for each in card["processes"]],
                    )
                    for report in found
                    for card in report["cards"]
                ]

            first, second = (process.pid for process in started)
            expected = [
                ("host1", 0, OK, []),
                ("host1", 1, OK, [first]),
                ("host2", 0, OK, []),
                ("host2", 1, WARNING, [second]),
            ]
            assert wait_until(lambda: seen() == expected), seen()
        finally:
            for process in started:
                process.kill()
                process.communicate()
