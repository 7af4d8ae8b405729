"""``isthmus cluster preflight``: recorded answers behind a program named ssh, real hosts, a lab with faults."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Callable
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

from isthmus_cluster import burn
from isthmus_cluster.agents import Agents
from isthmus_cluster.lab import network
from isthmus_cluster.preflight import card
from isthmus_common.outliers import outliers
from tests.helpers.cluster import cluster, lab, wait_until

GIB = 1 << 30
HOSTS = "abcd"
SSH = """
import json, sys, time
recorded = json.load(open({path!r}))[sys.argv[-2]]
if recorded["ends"]:
    sys.exit(recorded["ends"])
print("Welcome!", json.dumps({{"motd": "welcome", "value": {{}}}}), "[" * 100_000, sep="\\n", flush=True)
for line in sys.stdin:
    request = json.loads(line)
    ask = request.get("what", request["ask"])
    answer = recorded.get(ask, {{"value": {{"time": time.time() + recorded["ahead"]}}}})
    if ask != recorded["silent"]:
        print(json.dumps({{"id": request["id"], **answer}}), flush=True)
"""


preflight = partial(cluster, "preflight")


def host() -> dict[str, Any]:
    """Answers of a host with two cards and without a problem."""
    facts = {
        "versions": {"torch": "2.13.0", "Linux": "6.1"},
        "limits": {"ulimit -n": "65536"},
        "space": {"memory": 64 * GIB, "/dev/shm": 32 * GIB, "/tmp": 100 * GIB},
        "findings": [],
    }
    work = {"digest": 77, "products": 100, "wrong": 0, "copies": 0, "matmul": 100.0, "memory": 900.0}
    return {
        "ends": "",
        "silent": "",
        "ahead": 0.0,
        "facts": {"value": facts},
        "listen": {"value": {}},
        "reach": {"value": {}},
        "load": {
            "value": {"answers": {each: {"device": "chip", "chip": "X1"} for each in "01"}, "errors": {}}
        },
        "work": {"value": {"answers": {each: dict(work) for each in "01"}, "errors": {}}},
        "collectives": {"value": {"answers": {each: {"all-reduce": 50.0} for each in "01"}, "errors": {}}},
    }


class Recorded:
    """Hosts named a to d, with the address 198.51.100.N, whose answers can be changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hosts = {name: host() for name in HOSTS}
        self.inventory = folder / "cluster.yaml"

    def facts(self, name: str) -> dict[str, Any]:
        return self.hosts[name]["facts"]["value"]

    def answer(self, name: str, ask: str, local: str) -> dict[str, Any]:
        return self.hosts[name][ask]["value"]["answers"][local]

    def run(self, *arguments: object) -> tuple[int, list[list[str]]]:
        """Return the exit status and the lines of the table."""
        addresses = {name: f"198.51.100.{number}" for number, name in enumerate(self.hosts)}
        entries = [{"name": name, "address": address, "cards": 2} for name, address in addresses.items()]
        self.inventory.write_text(json.dumps({"hosts": entries}))
        recorded = {addresses[name]: each for name, each in self.hosts.items()}
        (self.folder / "recorded.json").write_text(json.dumps(recorded))
        status, output = preflight("-i", self.inventory, "--timeout", 5, *arguments)
        return status, [line.split("\t") for line in output.splitlines()[1:]]


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    program = SSH.format(path=str(tmp_path / "recorded.json"))
    (tmp_path / "ssh").write_text(f"#!{sys.executable} -S\n{program}")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Recorded(tmp_path)


FAULTS: dict[str, Callable[[Recorded], Any]] = {
    "other version": lambda r: r.facts("c")["versions"].update(torch="2.12.0"),
    "other limit": lambda r: r.facts("c")["limits"].update({"ulimit -n": "1024"}),
    "other chip": lambda r: r.answer("c", "load", "1").update(chip="X2"),
    "late clock": lambda r: r.hosts["c"].update(ahead=-3.0),
    "little memory": lambda r: r.facts("c")["space"].update(memory=GIB),
    "full disk": lambda r: r.facts("c")["space"].update({"/tmp": GIB}),
    "busy port": lambda r: r.facts("c")["findings"].append(
        ["ports", "fail", "port 29500: Address already in use", "end it"]
    ),
    "cut link": lambda r: r.hosts["c"].update(reach={"error": "TimeoutError: timed out"}),
    "slow card": lambda r: r.answer("c", "work", "1").update(matmul=25.0, memory=300.0),
    "wrong repeat": lambda r: r.answer("c", "work", "1").update(wrong=2),
    "other bits": lambda r: r.answer("c", "work", "1").update(digest=78),
    "wrong copy": lambda r: r.answer("c", "work", "1").update(copies=1),
    "stopped card": lambda r: r.hosts["c"]["work"]["value"].update(
        answers={"0": r.answer("c", "work", "0")}, errors={"1": "no answer within 70 s"}
    ),
    "slow link": lambda r: r.answer("c", "collectives", "0").update({"all-reduce": 10.0}),
    "dead host": lambda r: r.hosts["c"].update(
        ends="ssh: connect to host 198.51.100.2 port 22: No route to host"
    ),
    "broken clock": lambda r: r.hosts["c"].update(clock={"error": "OSError: no clock"}),
    "broken probe": lambda r: r.hosts["c"].update(facts={"error": "ValueError: odd"}),
}


@pytest.mark.parametrize(
    ("fault", "check", "where", "text"),
    [
        ("other version", "versions", "c", "torch 2.12.0, against 2.13.0 on 3 others"),
        ("other limit", "limits", "c", "ulimit -n 1024, against 65536 on 3 others"),
        ("other chip", "cards", "c card 1", "chip X2, against X1 on 7 others"),
        ("late clock", "clocks", "c", "3 s ± "),
        ("little memory", "space", "c", "memory: 1.0 GiB free, less than 4"),
        ("full disk", "space", "c", "/tmp: 1.0 GiB free, less than 10"),
        ("busy port", "ports", "c", "port 29500: Address already in use"),
        (
            "cut link",
            "reach",
            "c",
            "cannot reach 198.51.100.0:29500, where rank 0 listens: TimeoutError: timed out",
        ),
        (
            "slow card",
            "cards",
            "c card 1",
            "slow: matmul 25 TFLOP/s, 25% of the median of 8; memory 300 GB/s, 33% of the median of 8",
        ),
        ("wrong repeat", "cards", "c card 1", "2 of 100 equal products differ from the first"),
        (
            "other bits",
            "cards",
            "c card 1",
            "the bits of its product differ from those of 7 other cards (X1)",
        ),
        ("wrong copy", "cards", "c card 1", "a copy to the card and back changes bits"),
        ("stopped card", "cards", "c card 1", "no answer within 70 s"),
        ("slow link", "collectives", "c", "slow: all-reduce 10 GB/s, 20% of the median of 4"),
        (
            "dead host",
            "answer",
            "c",
            "ended with status 1: ssh: connect to host 198.51.100.2 port 22: No route to host",
        ),
        ("broken clock", "answer", "c", "OSError: no clock"),
        ("broken probe", "answer", "c", "ValueError: odd"),
    ],
)
@pytest.mark.sampled(8)
def test_a_fault_is_one_line(recorded: Recorded, fault: str, check: str, where: str, text: str) -> None:
    FAULTS[fault](recorded)
    status, lines = recorded.run()
    assert status == 3
    assert [line[:3] for line in lines] == [["fail", check, where]]
    assert lines[0][3].startswith(text)
    assert lines[0][4]


def test_without_a_fault_the_status_is_0(recorded: Recorded) -> None:
    assert recorded.run() == (0, [])


def test_a_silent_host_does_not_hold_up_the_others(recorded: Recorded) -> None:
    recorded.hosts["b"]["silent"] = "facts"
    FAULTS["other version"](recorded)
    status, lines = recorded.run("--timeout", 1)
    assert status == 3
    assert [line[1:4] for line in lines] == [
        ["answer", "b", "no answer within 1 s"],
        ["versions", "c", "torch 2.12.0, against 2.13.0 on 2 others"],
    ]


def test_equal_problems_are_one_line_and_warnings_do_not_count(recorded: Recorded) -> None:
    for name in HOSTS:
        recorded.facts(name)["findings"].append(["permissions", "warning", "umask 000", "`umask 027`"])
    assert recorded.run() == (
        0,
        [["warning", "permissions", "a, b, c and 1 more", "umask 000", "`umask 027`"]],
    )


def test_without_a_majority_nobody_is_accused(recorded: Recorded) -> None:
    for name in "cd":
        recorded.facts(name)["versions"]["torch"] = "2.12.0"
    status, lines = recorded.run("--checks", "versions")
    assert (status, lines[0][2:4]) == (3, ["a, b, c and 1 more", "torch: 2.13.0 on a, b; 2.12.0 on c, d"])


def test_limits_for_rates(recorded: Recorded) -> None:
    recorded.hosts = {"a": host()}
    status, lines = recorded.run("--at-least", "matmul=120")
    assert (status, len(lines)) == (3, 1)
    assert lines[0][2:4] == ["a card 0, a card 1", "slow: matmul 100 TFLOP/s, less than 120"]


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not {"src", "href"} & dict(attrs).keys()

    def handle_data(self, data: str) -> None:
        self.text += data


def test_page_and_json(recorded: Recorded, tmp_path: Path) -> None:
    FAULTS["slow card"](recorded)
    recorded.hosts["d"]["ahead"] = 2.0
    recorded.facts("d")["versions"]["torch"] = "<script>alert(1)</script>"
    path = tmp_path / "reports" / "page.html"
    recorded.hosts["b"]["ends"] = "gone"
    assert recorded.run("--output", path)[0] == 3
    assert path.stat().st_mode & 0o777 == 0o640
    page = Page()
    page.feed(path.read_text())
    assert not {"script", "link", "img", "iframe"} & page.tags and "url(" not in path.read_text()
    for text in ("Preflight of cluster", "c card 1", "gone", "<script>alert(1)</script>", "TFLOP/s"):
        assert text in page.text, text

    assert re.search(r"\+(1999|2000)\.", page.text)

    status, output = preflight("-i", recorded.inventory, "--timeout", 5, "--json")
    found = json.loads(output)
    assert status == 3
    assert {place for each in found["problems"] for place in each["where"]} == {"b", "c card 1", "d"}
    assert found["cards"]["c card 1"]["matmul"] == 25.0
    assert abs(found["clocks"]["d"][0] - 2.0) <= found["clocks"]["d"][1] + 0.01


def test_a_page_that_cannot_be_written(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("isthmus_cluster.preflight.run.run", None)
    for path in (tmp_path, "/proc/x.html"):
        assert recorded.run("--output", path) == (1, [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--checks", "cpu"], "cpu: unknown check; expected versions, clocks"),
        (["--skip", "cards,x"], "x: unknown check"),
        (["--dtype", "int8"], "--dtype int8: expected float32"),
        (["--at-least", "speed=1"], "--at-least speed=1: expected a figure and a number"),
        (["--at-least", "memory=fast"], "--at-least memory=fast: expected"),
        (["--inventory", "absent.yaml"], "absent.yaml: No such file"),
    ],
)
def test_wrong_arguments_are_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("hosts: [{name: a, cards: 1}]")
    status, output = preflight("--inventory", path, *arguments)
    assert (status, output.count("\n")) == (1, 1) and message in output


@pytest.mark.parametrize(
    "arguments",
    [
        ("--port", 0),
        ("--port", 70000),
        ("--timeout", "inf"),
        ("--seconds", 1e300),
        ("--clock", "nan"),
        ("--memory", "inf"),
        ("--disk", "inf"),
    ],
)
def test_numbers_out_of_range(arguments: tuple[str, object]) -> None:
    status, output = preflight(*arguments)
    assert status == 2 and f"Invalid value for '{arguments[0]}'" in output


# ---- real hosts


def test_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    entries = [
        {"name": name, "address": f"127.0.0.{number}", "cards": 1} for number, name in enumerate("ab", 1)
    ]
    path.write_text(json.dumps({"hosts": entries}))
    (tmp_path / "data.bin").touch()
    (tmp_path / "data.bin").chmod(0o666)
    tmp_path.chmod(0o750)
    arguments = ["-i", path, "--skip", "cards,collectives,limits", "--memory", 0, "--disk", 1e9]
    with socket.create_server(("", 0)) as busy:
        port = busy.getsockname()[1]
        arguments += ["--port", port, "--path", tmp_path / "data.bin", "--path", "/absent"]
        status, output = preflight(*arguments)
    found = {
        tuple(line.split("\t")[1:3]): line.split("\t")[3] for line in output.splitlines() if "fail" in line
    }
    assert status == 3
    assert f"port {port}: Address already in use" in found["ports", "a"]
    assert found["permissions", "a, b"] == "/absent: no such file or directory"
    assert output.count("/absent: no such file or directory") == 1
    assert "GiB free, less than 1e+09" in output
    assert "0640: 1, 1 writable by all" in output


class Wrong:
    """A matrix whose product is another one each time."""

    def __init__(self) -> None:
        self.products = 0

    def __matmul__(self, other: object) -> torch.Tensor:
        self.products += 1
        return torch.full((4, 4), float(self.products))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_load_of_a_card(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    load = {"device": "cpu", "index": 0, "seconds": 0.0, "rows": 16, "dtype": dtype, "mib": 1}
    found = card.work(**load)  # type: ignore[arg-type]
    assert (found["wrong"], found["products"] >= 1, found["matmul"] > 0, found["memory"] > 0) == (0, 1, 1, 1)
    assert card.work(**load)["digest"] == found["digest"]  # type: ignore[arg-type]
    monkeypatch.setattr(burn, "operand", lambda *_: Wrong())
    found = card.work(**load)  # type: ignore[arg-type]
    assert found["wrong"] == found["products"]


def test_outliers_are_above_the_others() -> None:
    assert outliers({"a": 1.0, "b": 1.01, "c": 0.99, "d": 2.0}, 6.0, 0.2) == {
        "d": pytest.approx(1.99, abs=0.01)
    }
    assert not outliers({"a": 1.0, "b": 2.0}, 6.0, 0.2)


def test_agents_end_with_the_process_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "isthmus_cluster.preflight.probe"
    monkeypatch.setattr("isthmus_cluster.agents._LONGEST", 1 << 20)
    commands = {
        "a": [sys.executable, "-m", module],
        "b": ["sh", "-c", "echo no >&2; exit 3"],
        "c": ["cat", "/dev/zero"],
    }
    with Agents(commands) as agents:
        found = agents.ask({name: {"ask": "clock"} for name in commands}, 30)
        assert found["a"].value["time"] > 0 and agents.alive == ["a"]
        assert agents.lost == {
            "b": "ended with status 3: no",
            "c": "ended with status -9: more than 1 MiB of output without a line end",
        }
        assert "TypeError" in agents.ask({"a": {"ask": "reach"}}, 30)["a"].error


def test_an_agent_that_is_ended_removes_its_temporary_files(tmp_path: Path) -> None:
    code = """if True:
        import tempfile, time
        from isthmus_cluster.agents import serve
        def wait():
            with tempfile.TemporaryDirectory():
                time.sleep(60)
        serve({"wait": wait})
    """
    with Agents({"a": [sys.executable, "-c", code]}, {"a": {"TMPDIR": str(tmp_path)}}) as agents:
        process = agents._alive["a"].process
        assert process.stdin
        process.stdin.write(b'{"id": 1, "ask": "wait"}\n')
        process.stdin.flush()
        wait_until(lambda: list(tmp_path.iterdir()))
    assert process.returncode == 0 and not list(tmp_path.iterdir())


@pytest.mark.full
def test_faults_of_a_lab(tmp_path: Path) -> None:
    folder = tmp_path / "lab"

    def change(*arguments: str) -> None:
        status, output = cluster("lab", *arguments, "--folder", folder)
        assert status == 0, output

    def problems(*arguments: object) -> dict[str, str]:
        load = ["--seconds", 4, "--matrix", 256, "--size", 8, "--slow", 0.5, "--timeout", 150, *arguments]
        _, output = preflight("-i", folder / "cluster.yaml", "--json", *load)
        found: dict[str, str] = {}
        for each in json.loads(output)["problems"]:
            if each["state"] == "fail":
                where = ", ".join(each["where"])
                found[where] = f"{found.get(where, '')}{each['check']}: {each['text']}; "
        return found

    with lab(folder, 3, 1, "p"):
        assert problems() == {}
        change("fault", "host2", "card0", "slow=8")
        change("fault", "host3", "card0", "corrupt=20")
        change("fault", "link", "host1-host3", "down")
        found = problems()
        assert found.keys() == {"host3", "host3 card 0", "host2 card 0"}
        assert (
            found["host3"].startswith("reach: cannot reach 10.78.0.1:29500") and "timed out" in found["host3"]
        )
        assert "equal products differ" in found["host3 card 0"]
        assert found["host2 card 0"].startswith("cards: slow: ")
        change("heal")
        change("fault", "host2", "card0", "stop")
        found = problems("--timeout", 45, "--checks", "cards")
        assert found == {"host2 card 0": "cards: no answer within 45 s; "}
        change("heal")
        # Processes of cards are killed, and take a moment to end.
        spaces = [f"p{os.getpid()}-host{number}" for number in (1, 2, 3)]
        wait_until(lambda: not [pid for space in spaces for pid in network.processes(space)], 10)
