"""The search for faulty parts of a cluster: on paper, on processes with injected faults, over shaped links."""

import json
import math
import time
from pathlib import Path

import numpy as np
import pytest

from isthmus_cluster import inventory as inventories
from isthmus_cluster.errors import ClusterError
from isthmus_cluster.inventory import Inventory
from isthmus_cluster.isolate import report, run
from isthmus_cluster.isolate.agent import _slow_cards
from isthmus_cluster.isolate.rounds import Kind, Outcome, Round, Topology
from isthmus_cluster.isolate.search import Found, Settings, isolate
from isthmus_cluster.isolate.simulate import Fault, Simulator
from tests.helpers.cluster import cluster, lab
from tests.helpers.command import isthmus
from tests.helpers.sshd import hosts_over_ssh

TOPOLOGY = Topology.regular(128, rack=16, switch=2)
HARD = [Fault("node", 3), Fault("card", 20, 5), Fault("port", 40), Fault("port", 41), Fault("card", 127, 0)]


def simulated(
    *faults: Fault, seed: int = 0, noise: float = 0.0, **settings: float
) -> tuple[Found, Simulator]:
    simulator = Simulator(TOPOLOGY, list(faults), noise=noise, random=np.random.default_rng(seed))
    return isolate(TOPOLOGY, simulator, Settings(seed=seed, **settings)), simulator


@pytest.mark.parametrize(
    "fault",
    [
        Fault("slow", 77),
        Fault("link", 9, 100),
        Fault("rack", 5),
        Fault("switch", 2),
        Fault("rail", 6),
        Fault("scale", 50, size=11),
        Fault("node", 64, firing=0.2),
        Fault("port", 65, firing=0.2),
        Fault("card", 66, 3, firing=0.5),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.firing}",
)
def test_a_fault_is_named_and_nothing_else(fault: Fault) -> None:
    found, simulator = simulated(fault)
    assert found.accused_parts() == {fault.verdict}
    assert found.node_hours == pytest.approx(simulator.node_seconds / 3600)
    assert all(verdict.slow == (fault.kind == "slow") for verdict in found.verdicts)
    assert all(math.isfinite(verdict.log_odds) for verdict in found.verdicts)


@pytest.mark.parametrize(
    ("fault", "seed"),
    [
        (
            Fault("port", 76, firing=0.2),
            144,
        ),  # by chance fires nine times with one partner, and never with others
        (Fault("scale", 57, size=32), 81),  # a healthy node is in each group that failed
        (Fault("link", 40, 102, firing=0.2), 17),  # noise fails a test of one end
    ],
    ids=lambda value: value.kind if isinstance(value, Fault) else "",
)
def test_a_part_that_shares_the_failed_tests_is_not_accused(fault: Fault, seed: int) -> None:
    found, _ = simulated(fault, seed=seed, noise=1e-4)
    assert found.accused_parts() == {fault.verdict}


def test_hard_faults_are_found_in_four_rounds_with_fewer_node_hours_than_a_bisection() -> None:
    found, _ = simulated(*HARD)
    assert found.accused_parts(4) == {fault.verdict for fault in HARD}
    assert found.node_hours < 21  # those of a bisection by hand, of all halves at the same time


def test_nothing_is_accused_on_one_test() -> None:
    for seed in range(2):
        found, _ = simulated(*HARD, seed=seed, noise=0.01)
        assert all(len(verdict.evidence) >= 2 for verdict in found.verdicts)


def test_noise_alone_accuses_nobody() -> None:
    for seed in range(5):
        found, _ = simulated(seed=seed, noise=1e-3, rounds=40)
        assert not found.verdicts
        assert found.excluded < 0.7


def test_the_budget_ends_the_search() -> None:
    found, _ = simulated(Fault("node", 1, firing=0.2), rounds=1)
    assert (found.ended, len(found.rounds)) == ("the rounds are used up", 1)
    found, _ = simulated(node_hours=3.0)
    assert found.ended == "the node-hours are used up"
    assert 3 <= found.node_hours < 5


def test_tests_of_a_round_are_disjoint() -> None:
    class Checked(Simulator):
        def run(self, tests: Round):  # type: ignore[no-untyped-def]
            assert len(np.unique(tests.members)) == len(tests.members)
            assert (tests.size > 0).all()
            assert ((tests.kind != Kind.SELF) | (tests.size == 1)).all()
            return super().run(tests)

    topology = Topology.regular(77, rack=9, switch=3)  # odd everywhere
    faults = [Fault("port", 10), Fault("link", 1, 60)]
    isolate(topology, Checked(topology, faults, noise=0.01), Settings(rounds=30))


def test_many_nodes_take_seconds() -> None:
    topology = Topology.regular(8192)
    begin = time.process_time()
    found = isolate(topology, Simulator(topology, [Fault("link", 100, 8000)]))
    assert found.accused_parts() == {("link", (100, 8000), -1)}
    assert time.process_time() - begin < 10


@pytest.mark.parametrize("values", [{"confidence": 1.0}, {"firing": 0.0}, {"noise": 0.7}, {"rounds": 0}])
def test_settings_out_of_range_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(values))} .*: give"):
        Settings(**values)  # type: ignore[arg-type]


def test_the_command_simulates_and_writes_json(tmp_path: Path) -> None:
    output = tmp_path / "found.json"
    result = isthmus("cluster", "isolate", "--simulate", "64", "--inject", "link=3-40", "-o", output)
    assert result.returncode == 3, result.stderr
    assert "link node3 - node40: faulty" in result.stdout
    assert "node-hours" in result.stdout
    found = json.loads(output.read_text())
    assert [(each["part"], each["nodes"]) for each in found["verdicts"]] == [("link", [3, 40])]
    assert found["tests"] == sum(each["tests"] for each in found["rounds"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--simulate", "8", "--inject", "node=8"],
        ["--simulate", "8", "--inject", "link=3"],
        ["--simulate", "8", "--confidence", "2"],
        ["--inventory", "absent.yaml"],
    ],
)
def test_wrong_arguments_end_with_one_line(arguments: list[str]) -> None:
    result = isthmus("cluster", "isolate", *arguments)
    assert result.returncode in (1, 2)
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("isthmus: ")


# -- real processes -----


def hosts(number: int, **each: str) -> Inventory:
    values = [
        {
            "name": f"n{index}",
            "cards": 2,
            "rack": f"r{index // 4}",
            **{k: v.format(index) for k, v in each.items()},
        }
        for index in range(number)
    ]
    return inventories.parse({"hosts": values}, "test")


def search(inventory: Inventory, processes: run.Processes, slow: float = 5.0) -> Found:
    settings = Settings(expected=1, noise=1e-3, firing=0.9, slow=slow, rounds=30)
    return isolate(run.topology(inventory), processes, settings)


@pytest.mark.full
def test_eight_processes_with_a_stopped_a_slow_and_a_corrupt_one() -> None:
    inventory = hosts(8)
    load = run.Load(matrix=64, length=64, timeout=6, step_timeout=1, interface="lo")
    # All nodes sleep, because milliseconds of work vary by more than a slow node's on a busy machine.
    faults = {node: run.Injected("sleep", seconds=3.5 if node == 6 else 0.3) for node in range(8)}
    faults |= {1: run.Injected("stop"), 4: run.Injected("corrupt", card=1)}
    with run.Processes(inventory, load, local=True, faults=faults) as processes:
        found = search(inventory, processes, slow=3.0)
        agent = next(iter(processes._agents.values())).process.pid
    assert found.accused_parts() == {("node", (1,), -1), ("card", (4,), 1), ("node", (6,), -1)}
    assert {verdict.nodes[0]: verdict.slow for verdict in found.verdicts} == {1: False, 4: False, 6: True}
    text = report.text(found, run.topology(inventory))
    assert "card 1 of n4: faulty" in text and "self of n4: failed: cards 1: a repeated matmul differs" in text
    assert not Path(f"/proc/{agent}").exists()


@pytest.mark.parametrize(
    ("seconds", "work", "cards"),
    [
        ({0: 1.0, 1: 1.1, 2: 5.0}, 5.2, 0b100),
        ({0: 0.001, 1: 0.2}, 3.7, 0),  # something else is slow
        ({}, 1.0, 0),
    ],
)
def test_a_card_is_slow_if_it_explains_the_time_of_the_test(
    seconds: dict[int, float], work: float, cards: int
) -> None:
    assert _slow_cards(seconds, work) == cards


@pytest.mark.full
def test_a_host_that_is_lost_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    command = run.remote.command
    monkeypatch.setattr(
        run.remote, "command", lambda host, line: ["false"] if host.name == "n2" else command(host, line)
    )
    load = run.Load(matrix=64, length=64, timeout=3, step_timeout=1, interface="lo")
    inventory = hosts(4, address="127.0.1.{}")
    with run.Processes(inventory, load) as processes:
        found = search(inventory, processes)
    assert found.accused_parts() == {("node", (2,), -1)}
    assert "the agent ended; check `python" in found.verdicts[0].evidence[0].what


@pytest.mark.full
def test_an_error_of_all_nodes_is_no_verdict() -> None:
    with (
        run.Processes(hosts(4), run.Load(device="meta", matrix=64), local=True) as processes,
        pytest.raises(ClusterError, match=r"all 4 tests fail, so none tells a faulty node: .*meta"),
    ):
        search(hosts(4), processes)


@pytest.mark.parametrize(
    ("causes", "is_common"),
    [
        (["RuntimeError: port 1", "RuntimeError: port 22"], True),
        (["RuntimeError: port 1"], False),
        (["RuntimeError: port 1", "OSError: x"], False),
        (["timed out", "timed out"], False),
        (["cards 1: a repeated matmul differs", "cards 0: a repeated matmul differs"], False),
    ],
)
def test_what_all_tests_say_alike(causes: list[str], is_common: bool) -> None:
    zeros = np.zeros(2)
    outcome = Outcome(zeros > 0, zeros, zeros, zeros.astype(np.int64), causes=dict(enumerate(causes)))
    assert run._common_error(outcome) == (causes[0] if is_common else "")


@pytest.mark.full
def test_a_stopped_node_is_found_over_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = run.Load(matrix=64, length=64, timeout=3, step_timeout=1, interface="lo")
    with (
        hosts_over_ssh(tmp_path, monkeypatch) as inventory,
        run.Processes(inventory, load, faults={1: run.Injected("stop")}) as processes,
    ):
        assert len(processes._agents) == 3
        found = search(inventory, processes)
    assert found.accused_parts() == {("node", (1,), -1)}


LAB = ["--timeout", "10", "--step-timeout", "2", "--slow", "4", "--noise", "1e-3", "--expected", "1"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "matrix", "named"),
    [
        (["host2", "card1", "stop"], 1024, "card 1 of host2: faulty"),
        (["host5", "card0", "slow=100"], 1536, "card 0 of host5: "),
        (["host6", "card1", "corrupt=100"], 1024, "card 1 of host6: faulty"),
        (["link", "host4-host7", "rate=1mbit"], 64, "link host4 - host7: faulty"),
        (["link", "host1-host3", "down"], 64, "link host1 - host3: faulty"),
    ],
    ids=lambda value: "-".join(value[1:]) if isinstance(value, list) else "",
)
def test_a_fault_of_the_lab_is_named(tmp_path: Path, fault: list[str], matrix: int, named: str) -> None:
    with lab(tmp_path / "lab", 8, 2, "iso") as folder:
        assert cluster("lab", "fault", *fault, "--folder", folder)[0] == 0
        line = ["-i", folder / "cluster.yaml", "--matrix", str(matrix), "--firing", "0.5", *LAB]
        done = isthmus("cluster", "isolate", *line)
    assert done.returncode == 3, done.stdout + done.stderr
    verdicts = [each for each in done.stdout.splitlines() if ", since round " in each]
    assert len(verdicts) == 1 and verdicts[0].startswith(named), done.stdout
