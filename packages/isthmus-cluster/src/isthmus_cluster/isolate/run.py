"""Tests on real processes: on this machine, in its network namespaces, or on the hosts of an inventory."""

from __future__ import annotations

import contextlib
import json
import random
import re
import selectors
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np

from isthmus_cluster import remote
from isthmus_cluster.agents import Agent, end_all
from isthmus_cluster.errors import ClusterError
from isthmus_cluster.inventory import Host, Inventory
from isthmus_cluster.isolate.rounds import Kind, Outcome, Round, Topology, median_and_deviation, robust_z

AGENT = ("-m", "isthmus_cluster.isolate.agent")
_LOCAL_RANK = "LOCAL_RANK=000000"  # room that the processes of the cards write theirs into
_PATIENCE = 4  # exchanges of a sweep for which the last nodes are waited for
_SLACK_S = 10.0  # for processes to start
_END_S = 5.0  # for agents to end
_SLOW_LINK = 3.0  # times the median of the sweep


@dataclass(frozen=True, kw_only=True)
class Load:
    """The work of a test.

    Attributes:
        device: type of the cards, such as "cpu", "chip", "cuda".
        backend: of the process groups; the sweep and CPU cards need "gloo".
        matrix: rows of the matrices of the burn.
        length: elements that each collective sends to each node.
        timeout: seconds after which a collective fails.
        step_timeout: the same for one exchange of a sweep.
        interface: network interface for gloo; "" lets it choose.
    """

    device: str = "cpu"
    backend: str = "gloo"
    matrix: int = 2048
    length: int = 1 << 18
    timeout: float = 180.0
    step_timeout: float = 10.0
    interface: str = ""


@dataclass(frozen=True)
class Injected:
    """A fault to inject into a node, for practice.

    Attributes:
        kind: "stop" (SIGSTOP), "sleep" (`seconds` more work) or "corrupt" (a bit of a product of `card`).
        firing: probability per test.
    """

    kind: str
    seconds: float = 1.0
    card: int = 0
    firing: float = 1.0


@dataclass
class _Running:
    """A test in progress."""

    nodes: list[int]
    kind: Kind
    begin: float
    replies: dict[int, dict[str, Any]] = field(default_factory=dict)
    served: bool = False  # the store of the first node
    first: float = 0.0
    end: float = 0.0


class Processes:
    """Runs tests on the nodes of an inventory, through one agent for each machine.

    Hosts with a network namespace share one agent, which enters the namespace for each test.
    """

    def __init__(
        self,
        inventory: Inventory,
        load: Load,
        *,
        local: bool = False,
        python: str = sys.executable,
        faults: dict[int, Injected] | None = None,
        seed: int = 0,
    ) -> None:
        """Start the agents.

        Args:
            inventory: one node of the search is one of its hosts.
            load: what tests run.
            local: all hosts are this machine.
            python: with Isthmus, on every host.
            faults: by node, injected into its processes.
            seed: of the faults that fire with a probability.
        """
        self.hosts = inventory.hosts
        self.load = load
        self.faults = faults or {}
        self.local = local
        self.python = python
        self.random = random.Random(seed)
        self._agents: dict[str, Agent] = {}
        self._events = selectors.DefaultSelector()
        self._lost: dict[str, str] = {}  # why agents have ended
        self._number = 0
        for host in self.hosts:
            key = self._key(host)
            if key not in self._agents:
                self._agents[key] = self._start(key, host)
        ready = 0
        while ready < len(self._agents) - len(self._lost):
            ready += sum("ready" in reply for reply in self._replies())

    def _key(self, host: Host) -> str:
        return "" if self.local or host.namespace else host.name

    def _start(self, key: str, host: Host) -> Agent:
        arguments = ["env", _LOCAL_RANK, self.python if key else sys.executable, *AGENT]
        if not key:
            return Agent(key, arguments, {}, self._events)
        first = remote.environment_line(host.environment)
        return Agent(key, remote.command(host, arguments), {}, self._events, first)

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the agents, which end their processes."""
        end_all(list(self._agents.values()), _END_S)
        self._events.close()

    # -- a round -----

    def run(self, tests: Round) -> Outcome:
        """Run the tests of a round.

        A host whose agent has ended fails its tests.

        Raises:
            ClusterError: all agents have ended, or all tests fail with one error, as by a wrong option.
        """
        running: dict[int, _Running] = {}
        order = []
        for index in range(len(tests)):
            self._number += 1
            nodes = [int(node) for node in tests.nodes(index)]
            running[self._number] = _Running(nodes, Kind(tests.kind[index]), time.monotonic())
            order.append(self._number)
            self._request(self._number, running[self._number], 0, 0)
        while waiting := [number for number, test in running.items() if not test.end]:
            for reply in self._replies():
                if reply.get("test") in running:
                    self._take(reply, running[reply["test"]], reply["test"])
            for number in waiting:
                for node in running[number].nodes:
                    if why := self._lost.get(self._key(self.hosts[node])):
                        self._take({"node": node, "error": why}, running[number], number)
                self._end(number, running[number])
        outcome = _outcome([running[number] for number in order])
        if common := _common_error(outcome):
            raise ClusterError(f"all {len(tests)} tests fail, so none tells a faulty node: {common}")
        return outcome

    def _request(self, number: int, test: _Running, rank: int, port: int) -> None:
        node = test.nodes[rank]
        host = self.hosts[node]
        fault = self.faults.get(node)
        fires = fault is not None and self.random.random() < fault.firing
        load = self.load
        request = {
            **{name: getattr(load, name) for name in ("device", "backend", "matrix", "length", "timeout")},
            "step_timeout": load.step_timeout,
            "interface": load.interface,
            "test": number,
            "node": node,
            "kind": test.kind.name.lower(),
            "rank": rank,
            "size": len(test.nodes),
            "cards": len(host.cards),
            "namespace": host.namespace,
            "environment": dict(host.environment),
            "address": host.address,
            "master": "127.0.0.1" if self.local else self.hosts[test.nodes[0]].address,
            "port": port,
            "limit": self._limit(test),
            "fault": vars(fault) if fault and fires else {},
        }
        self._send(self._key(host), request)

    def _limit(self, test: _Running) -> float:
        """Return the seconds after which a process is killed: those of a sweep allow for its late steps."""
        late = 12 * self.load.step_timeout if test.kind == Kind.SWEEP else 0.0
        return self.load.timeout + late + (_SLACK_S if len(test.nodes) > 1 else 0.0)

    def _send(self, key: str, message: dict[str, Any]) -> None:
        self._agents[key].send(message)

    def _lose(self, key: str) -> None:
        words = self._agents[key].last_words
        where = key or "this machine"
        self._lost[key] = (
            f"the agent ended{words and f': {words}'}; check `python {' '.join(AGENT)}` on {where}"
        )
        if len(self._lost) == len(self._agents):
            raise ClusterError(self._lost[key])

    def _replies(self) -> list[dict[str, Any]]:
        found = []
        for event, _ in self._events.select(0.1):
            agent = event.data
            for line in agent.read(event.fd):
                with contextlib.suppress(ValueError):  # the greeting of a host
                    found.append(json.loads(line))
            if agent.has_ended:
                self._lose(agent.name)
        return found

    def _take(self, reply: dict[str, Any], test: _Running, number: int) -> None:
        if test.end:
            return
        if "port" in reply:
            test.served = True
            for rank in range(1, len(test.nodes)):
                self._request(number, test, rank, reply["port"])
            return
        test.replies.setdefault(reply["node"], reply)

    def _end(self, number: int, test: _Running) -> None:
        now = time.monotonic()
        if len(test.replies) == len(test.nodes):
            test.end = now
            return
        if test.kind == Kind.SWEEP:  # stopped nodes never reply; the others have named their links
            test.first = test.first or (now if test.replies else 0.0)
            hopeless = bool(test.first) and now > test.first + _PATIENCE * self.load.step_timeout
        else:
            hopeless = any(reply["error"] for reply in test.replies.values())
        if hopeless:
            for key in {self._key(self.hosts[node]) for node in test.nodes}:
                self._send(key, {"kill": number})
            test.end = now


def _outcome(tests: Sequence[_Running]) -> Outcome:
    failed = np.zeros(len(tests), bool)
    work = np.zeros(len(tests))
    cards = np.zeros(len(tests), np.int64)
    causes: dict[int, str] = {}
    links: list[tuple[int, int]] = []
    for index, test in enumerate(tests):
        errors = [reply["error"] for reply in test.replies.values() if reply["error"]]
        if test.kind == Kind.SWEEP:
            links += _bad_links(test)
        elif errors:
            failed[index] = True
            causes[index] = errors[0]
        work[index] = max((reply.get("seconds", 0.0) for reply in test.replies.values()), default=0.0)
        for reply in test.replies.values():
            cards[index] |= reply.get("cards", 0)
    seconds = np.array([test.end - test.begin for test in tests])
    found = np.array(sorted(set(links)), np.int64).reshape(-1, 2)
    return Outcome(failed, seconds, work, cards, found, np.zeros(len(found), np.int64), causes)


def _common_error(outcome: Outcome) -> str:
    """Return the error of all tests if it is one that faulty nodes do not have in common; else ""."""
    found = {re.sub(r"\d+", "0", each) for each in outcome.causes.values()}
    is_result = re.search(r"differ|wrong|\btimed?\b|timeout", " ".join(found), re.IGNORECASE)
    if len(outcome.causes) < max(2, len(outcome.failed)) or len(found) > 1 or is_result:
        return ""
    return next(iter(outcome.causes.values()))


def _bad_links(test: _Running) -> list[tuple[int, int]]:
    """Return the links of a sweep that failed or took far longer than the others."""
    nodes = test.nodes
    times: dict[tuple[int, int], list[float]] = {}
    for node, reply in test.replies.items():
        for _, partner, seconds in reply.get("links", []):
            pair = min(node, nodes[partner]), max(node, nodes[partner])
            times.setdefault(pair, []).append(seconds)
    good = np.array([max(each) for each in times.values() if min(each) >= 0])
    median, spread = median_and_deviation(good) if len(good) else (0.0, 0.0)
    bad = []
    for pair, each in times.items():
        late = (
            float(robust_z(np.array([max(each)]), median, spread)[0]) > 6 and max(each) > _SLOW_LINK * median
        )
        if min(each) < 0 or late:
            bad.append(pair)
    silent = [node for node in nodes if "links" not in test.replies.get(node, {})]
    silent = silent if test.served else nodes[:1]
    for node in silent:  # no reply: its links to the next nodes stand for all of them
        bad += [(min(node, other), max(node, other)) for other in nodes if other != node][:3]
    return bad


def topology(inventory: Inventory) -> Topology:
    """Return racks, and super pods in the place of switches, of an inventory."""
    racks, pods = sorted(inventory.racks), sorted(inventory.super_pods)
    return Topology(
        np.array([racks.index(host.rack) for host in inventory.hosts], np.int64),
        np.array([pods.index(host.super_pod) for host in inventory.hosts], np.int64),
        max(len(host.cards) for host in inventory.hosts),
        [host.name for host in inventory.hosts],
        racks,
        pods,
    )
