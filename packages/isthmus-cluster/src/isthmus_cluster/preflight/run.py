"""Asks all hosts of an inventory at the same time, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus_cluster import ports, remote
from isthmus_cluster.agents import Agents, Answer, Message
from isthmus_cluster.inventory import Host, Inventory
from isthmus_cluster.preflight.checks import Results
from isthmus_cluster.render.job import TORCHRUN_PORT

_FACTS = {"versions", "limits", "space", "permissions", "ports"}
_PINGS = 9  # pings of a clock; the one with the shortest round trip counts
_CONNECT_S = 10.0
_SLACK_S = 5.0  # for an answer to come back when the time of a host's cards is over


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The checks, and their load.

    Attributes:
        checks: as the option lists them.
        python: with Isthmus, on every host.
        paths: folders that a job will use on every host.
        port: of rank 0; None for the launchers' defaults.
        timeout: seconds that hosts and cards have for each answer, beyond the time of the load.
        seconds: of load on each card.
        rows: of the matrices.
        dtype: of the matrices, such as "bfloat16".
        mib: size of copies and all-reduces.
        device: type of the cards; "" for the accelerator of each host.
    """

    checks: Sequence[str]
    python: str
    paths: Sequence[str] = ()
    port: int | None = None
    timeout: float = 60.0
    seconds: float = 10.0
    rows: int = 2048
    dtype: str = "float32"
    mib: int = 256
    device: str = ""


def run(inventory: Inventory, settings: Settings, progress: Callable[[str, int, int], None]) -> Results:
    """Ask all hosts; return their answers.

    Args:
        inventory: the hosts.
        settings: what to ask.
        progress: called with the current step, and how many hosts of all have answered.
    """
    command = [settings.python, "-m", "isthmus_cluster.preflight.probe"]
    commands = {host.name: remote.command(host, command) for host in inventory.hosts}
    first = {host.name: remote.environment_line(host.environment) for host in inventory.hosts}
    with Agents(commands, first=first) as agents:
        preflight = _Preflight(inventory, settings, agents, progress)
        preflight.run()
        return preflight.results


class _Preflight:
    def __init__(
        self,
        inventory: Inventory,
        settings: Settings,
        agents: Agents,
        progress: Callable[[str, int, int], None],
    ) -> None:
        self.hosts = {host.name: host for host in inventory.hosts}
        self.settings = settings
        self.agents = agents
        self.progress = progress
        self.flows = ports.matrix(inventory, settings.port, (0, 0))
        self.results = Results(list(self.hosts))

    def run(self) -> None:
        """Ask step by step, each host that has answered so far."""
        wanted = self.settings.checks
        if "clocks" in wanted:
            self._clocks()
        if _FACTS & set(wanted):
            self._facts()
        if "reach" in wanted:
            self._reach()
        if "cards" in wanted or "collectives" in wanted:
            self._on_cards("load")
        if "cards" in wanted:
            shape = {"rows": self.settings.rows, "dtype": self.settings.dtype, "mib": self.settings.mib}
            self._on_cards("work", seconds=self.settings.seconds, **shape)
        if "collectives" in wanted:
            seconds = self.settings.seconds / 5
            wait = 0.8 * self.settings.timeout  # less than the limit of the answer
            self._on_cards("collectives", seconds=seconds, mib=self.settings.mib, timeout=wait)
        self.results.lost = dict(self.agents.lost)

    def _ask(
        self,
        what: str,
        seconds: float,
        request: Callable[[Host], Message],
        hosts: Sequence[str] | None = None,
        step: str = "",
    ) -> dict[str, Answer]:
        alive = [name for name in self.agents.alive if hosts is None or name in hosts]
        requests = {name: {"ask": what, **request(self.hosts[name])} for name in alive}
        return self.agents.ask(requests, seconds, lambda done: self.progress(step or what, done, len(alive)))

    def _clocks(self) -> None:
        """Measure the clocks as NTP does: a host's answer is taken to be from the middle of the round trip."""
        trips: dict[str, float] = {}
        failed: dict[str, str] = {}
        for _ in range(_PINGS):
            for name, answer in self._ask("clock", self.settings.timeout, lambda _: {}).items():
                if answer.error:
                    failed[name] = answer.error
                    continue
                half = (answer.received - answer.sent) / 2
                if half < trips.get(name, float("inf")):
                    trips[name] = half
                    self.results.clocks[name] = (answer.value["time"] - answer.sent - half, half)
        self.results.errors += [(name, "clock", why) for name, why in failed.items()]

    def _facts(self) -> None:
        def request(host: Host) -> Message:
            return {
                "checks": list(self.settings.checks),
                "paths": list(self.settings.paths),
                "ports": self._ports(host),
            }

        for name, answer in self._ask("facts", self.settings.timeout, request).items():
            if answer.error:
                self.results.errors.append((name, "facts", answer.error))
            else:
                self.results.facts[name] = answer.value

    def _ports(self, host: Host) -> list[int]:
        """Return the ports that a job needs on a host, without those that the kernel assigns, and ssh's."""
        ranges = [
            flow.ports
            for flow in self.flows
            if flow.destination == host.name and flow.purpose != "ssh" and all(flow.ports)
        ]
        return sorted({port for first, last in ranges for port in range(first, last + 1)})

    def _reach(self) -> None:
        """Let each host connect to rank 0, as at a rendezvous."""
        first = next(iter(self.hosts))
        port = self.settings.port or TORCHRUN_PORT
        listening = self._ask("listen", self.settings.timeout, lambda _: {"port": port}, [first])
        if first not in listening or listening[first].error:  # told by the check of ports
            return
        address = self.hosts[first].address
        self.results.master = f"{address}:{port}"
        limit = min(_CONNECT_S, self.settings.timeout / 2)
        request = {"address": address, "port": port, "seconds": limit}
        for name, answer in self._ask("reach", self.settings.timeout, lambda _: request).items():
            if answer.error:
                self.results.unreachable[name] = answer.error

    def _on_cards(self, what: str, **load: Any) -> None:
        """Ask for an answer of each card."""
        limit = self.settings.timeout + load.get("seconds", 0.0)

        def request(host: Host) -> Message:
            cards = [card.index for card in host.cards]
            return {"what": what, "cards": cards, "limit": limit, "device": self.settings.device, **load}

        for name, answer in self._ask("on_cards", limit + _SLACK_S, request, step=what).items():
            cards = [f"{name} card {card.index}" for card in self.hosts[name].cards]
            self.results.errors += [(name, what, answer.error)] if answer.error else []
            for local, why in answer.value.get("errors", {}).items():
                self.results.errors.append((cards[int(local)], what, why))
            found = {
                cards[int(local)]: each for local, each in answer.value.get("answers", {}).items() if each
            }
            if what == "collectives" and found:
                chip = f"{len(found)} x {self.results.cards[next(iter(found))]['chip']}"
                rate = min(each["all-reduce"] for each in found.values())
                found = {name: {"chip": chip, "all-reduce": rate}}
            for place, each in found.items():
                self.results.cards.setdefault(place, {}).update(each)
