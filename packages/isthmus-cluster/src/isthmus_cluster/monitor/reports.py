"""Reports of all hosts of a cluster, from an agent on each of them."""

from __future__ import annotations

import selectors
import socket
import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from isthmus_cluster import remote
from isthmus_cluster.agents import Agent, end_all
from isthmus_cluster.inventory import Inventory, parse
from isthmus_cluster.monitor.card import Card, Report, decode

_START_S = 30.0  # for the first report: a connection and the start of Python
_SHORTEST_SILENCE_S = 5.0
_RESTART_S = 10.0  # from the end of an agent to its next start
_STEP_S = 0.1
_PATIENCE_S = 2.0  # for agents to end
WAITING = "waiting for the first report"  # error of a host whose agent has just started


@dataclass
class _Host:
    """A host, its agent, and its last report."""

    name: str
    command: list[str]
    first: bytes  # first bytes of the agent's standard input
    agent: Agent | None = None
    since: float = 0.0  # its last report, else its first start; monotonic
    started: float = 0.0  # monotonic
    ended: float | None = None  # monotonic
    time: float = 0.0  # its last report, since the epoch
    cards: tuple[Card, ...] = ()
    error: str = ""
    last_words: str = ""


class Reports:
    """Starts an agent on each host, and collects what they report; a context manager.

    Args:
        inventory: the cluster; None for this machine.
        interval: seconds between the reports of a host.
        source: "npu-smi", "nvml" or "driver"; "" for what is found on each host.
        python: Python with Isthmus, on every host.
    """

    def __init__(
        self,
        inventory: Inventory | None = None,
        interval: float = 2.0,
        source: str = "",
        python: str = sys.executable,
    ) -> None:
        self._silence = max(_SHORTEST_SILENCE_S, 3 * interval)
        self._events = selectors.DefaultSelector()
        name = {"name": socket.gethostname(), "address": "127.0.0.1", "cards": 1}
        hosts = inventory.hosts if inventory else parse({"hosts": [name]}, "this machine").hosts
        agent = [
            python,
            "-m",
            "isthmus_cluster.monitor.agent",
            f"--interval={interval}",
            f"--source={source}",
        ]
        self._hosts: dict[str, _Host] = {}
        for host in hosts:
            cards = ",".join(str(card.index) for card in host.cards) if inventory else ""
            command = remote.command(host, [*agent, f"--cards={cards}"])
            self._hosts[host.name] = _Host(host.name, command, remote.environment_line(host.environment))

    def __enter__(self) -> Self:
        for host in self._hosts.values():
            self._start(host)
        return self

    def poll(self, timeout: float) -> dict[str, Report]:
        """Wait for the given seconds; return the last report of each host, in the order of the inventory.

        An agent that has ended is started again after a while.
        """
        now = time.monotonic()
        until = now + timeout
        for host in self._hosts.values():
            if host.ended is not None and now - host.ended > _RESTART_S:
                self._start(host)
        while True:
            for key, _ in self._events.select(max(0.0, until - time.monotonic())):
                self._read(key.data, key.fd)
            if time.monotonic() >= until:
                return {name: self._report(host) for name, host in self._hosts.items()}

    def wait_for_all(self) -> dict[str, Report]:
        """Wait until all hosts have reported or are late; return their reports."""
        latest = self.poll(_STEP_S)
        while any(report.error == WAITING for report in latest.values()):
            latest = self.poll(_STEP_S)
        return latest

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the agents."""
        end_all([host.agent for host in self._hosts.values() if host.agent], _PATIENCE_S)
        self._events.close()

    def _start(self, host: _Host) -> None:
        """Start an agent, in place of one that has ended."""
        if host.agent:
            host.agent.end()
        host.agent, host.ended, host.last_words, host.started = None, None, "", time.monotonic()
        host.since = host.since or host.started
        try:
            host.agent = Agent(host.name, host.command, {}, self._events, host.first)
        except OSError as error:
            host.ended, host.last_words = time.monotonic(), f"{error.filename}: {error.strerror}"

    def _read(self, agent: Agent, descriptor: int) -> None:
        host = self._hosts[agent.name]
        for line in agent.read(descriptor):
            if (found := decode(line)) is not None:
                host.cards, host.error = found
                host.time, host.since = time.time(), time.monotonic()
        if agent.has_ended:
            host.ended = time.monotonic()
        host.last_words = agent.last_words

    def _report(self, host: _Host) -> Report:
        now, error = time.monotonic(), host.error
        age = now - host.since
        if host.ended is not None:
            error = f"no report for {age:.0f} s: {host.last_words or 'the agent was ended'}"
        elif not host.time and now - host.started < _START_S:
            error = WAITING
        elif not host.time or age > self._silence:
            error = f"no report for {age:.0f} s"
        return Report(host.name, host.time, age, host.cards, error)
