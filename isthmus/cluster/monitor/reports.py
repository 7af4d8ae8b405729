"""Reports of all hosts of a cluster, from an agent on each of them."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from isthmus.cluster import remote
from isthmus.cluster.inventory import Host, Inventory, parse
from isthmus.cluster.monitor.card import Card, Report, decode

_START_S = 30.0  # for the first report: a connection and the start of Python
_SHORTEST_SILENCE_S = 5.0
_RESTART_S = 10.0  # from the end of an agent to its next start
_PATIENCE_S = 2.0  # for agents to end
WAITING = "waiting for the first report"  # error of a host whose agent has just started


@dataclass
class _Agent:
    """A host's agent, and its last report."""

    host: Host
    command: list[str]
    process: subprocess.Popen[bytes] | None = None
    since: float = 0.0  # its last report, else its first start; monotonic
    started: float = 0.0  # monotonic
    ended: float | None = None  # monotonic
    time: float = 0.0  # its last report, since the epoch
    cards: tuple[Card, ...] = ()
    error: str = ""
    last_words: str = ""
    rest: dict[int, bytes] = field(default_factory=dict)


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
            "isthmus.cluster.monitor.agent",
            f"--interval={interval}",
            f"--source={source}",
        ]
        self._agents = []
        for host in hosts:
            cards = ",".join(str(card.index) for card in host.cards) if inventory else ""
            self._agents.append(_Agent(host, remote.command(host, [*agent, f"--cards={cards}"])))

    def __enter__(self) -> Self:
        for agent in self._agents:
            self._start(agent)
        return self

    def poll(self, timeout: float) -> dict[str, Report]:
        """Wait for the given seconds; return the last report of each host, in the order of the inventory.

        An agent that has ended is started again after a while.
        """
        now = time.monotonic()
        until = now + timeout
        for agent in self._agents:
            if agent.ended is not None and now - agent.ended > _RESTART_S:
                self._start(agent)
        while True:
            for key, _ in self._events.select(max(0.0, until - time.monotonic())):
                self._read(key.data, key.fd)
            if time.monotonic() >= until:
                return {agent.host.name: self._report(agent) for agent in self._agents}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the agents: they end as their standard input does, also those of a host that is reached by ssh."""
        processes = [agent.process for agent in self._agents if agent.process]
        for process in processes:
            assert process.stdin
            with contextlib.suppress(OSError):
                process.stdin.close()
        until = time.monotonic() + _PATIENCE_S
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
        for agent in self._agents:
            self._end(agent)
        self._events.close()

    def _start(self, agent: _Agent) -> None:
        """Start an agent in a session of its own, which Ctrl-C does not reach."""
        self._end(agent)
        pipe = subprocess.PIPE
        agent.ended, agent.last_words, agent.started = None, "", time.monotonic()
        agent.since = agent.since or agent.started
        try:
            agent.process = process = subprocess.Popen(
                agent.command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except OSError as error:
            agent.ended, agent.last_words = time.monotonic(), f"{error.filename}: {error.strerror}"
            return
        for stream in (process.stdout, process.stderr):
            assert stream
            agent.rest[stream.fileno()] = b""
            self._events.register(stream, selectors.EVENT_READ, agent)

    def _read(self, agent: _Agent, descriptor: int) -> None:
        assert agent.process and agent.process.stdout
        data = os.read(descriptor, 1 << 16)
        if not data:
            self._events.unregister(descriptor)
            del agent.rest[descriptor]
            if not agent.rest:
                agent.ended = time.monotonic()
            return
        *lines, agent.rest[descriptor] = (agent.rest[descriptor] + data).split(b"\n")
        for line in lines:
            if descriptor != agent.process.stdout.fileno():
                agent.last_words = line.decode(errors="replace").strip() or agent.last_words
            elif (found := decode(line)) is not None:
                agent.cards, agent.error = found
                agent.time, agent.since = time.time(), time.monotonic()

    def _report(self, agent: _Agent) -> Report:
        now, error = time.monotonic(), agent.error
        age = now - agent.since
        if agent.ended is not None:
            error = f"no report for {age:.0f} s: {agent.last_words or 'the agent was ended'}"
        elif not agent.time and now - agent.started < _START_S:
            error = WAITING
        elif not agent.time or age > self._silence:
            error = f"no report for {age:.0f} s"
        return Report(agent.host.name, agent.time, age, agent.cards, error)

    def _end(self, agent: _Agent) -> None:
        """End an agent's local process, and forget it."""
        process, agent.process = agent.process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for descriptor in agent.rest:
            self._events.unregister(descriptor)
        agent.rest.clear()
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream
            with contextlib.suppress(OSError):
                stream.close()
