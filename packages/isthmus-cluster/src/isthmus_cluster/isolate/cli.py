"""``isthmus cluster isolate``: find the faulty node, card or link of a cluster."""

import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus_cluster import arguments
from isthmus_cluster.errors import ClusterError
from isthmus_common.exits import exit_on, fail

if TYPE_CHECKING:
    from isthmus_cluster.isolate.run import Injected
    from isthmus_cluster.isolate.simulate import Fault

EPILOG = (
    "Faults to practise on: --inject node3=stop, node3=sleep:2, node3=corrupt:1 (card 1), node3=stop@0.2 (in one "
    "test of five); with --simulate instead node=3, link=3-7, rack=2, switch=0, rail=1, port=5, slow=5, scale=5:64 "
    "(in tests of 64 nodes or more). Exit status: 0 without a fault, 3 with one."
)
_INJECTED = re.compile(
    r"(?P<node>[\w.-]+)=(?P<kind>stop|sleep|corrupt)(:(?P<value>[\d.]+))?(@(?P<firing>[\d.]+))?"
)
_SIMULATED = re.compile(
    r"(?P<kind>node|port|slow|link|rack|switch|rail|scale|card)=(?P<first>\d+)([-:](?P<second>\d+))?"
    r"(@(?P<firing>[\d.]+))?"
)


def isolate(
    inventory: arguments.Inventory = arguments.INVENTORY,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="JSON file to write.")] = None,
    confidence: Annotated[float, typer.Option(help="Probability at which a part is accused.")] = 0.999,
    firing: Annotated[
        float, typer.Option(help="Smallest probability per test with which a fault to be found shows itself.")
    ] = 0.2,
    rounds: Annotated[int, typer.Option(min=1, help="Most rounds.")] = 400,
    node_hours: Annotated[float, typer.Option(help="Most node-hours.", show_default="unlimited")] = math.inf,
    expected: Annotated[float, typer.Option(help="Faulty nodes expected beforehand.")] = 4.0,
    noise: Annotated[float, typer.Option(help="Probability that a test fails without a fault.")] = 1e-4,
    slow: Annotated[float, typer.Option(help="A test is slow from this multiple of the median.")] = 1.1,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds after which a test fails.")] = 180.0,
    step_timeout: Annotated[
        float, typer.Option(min=0.1, help="The same for one exchange between two nodes.")
    ] = 10.0,
    matrix: Annotated[int, typer.Option(min=1, help="Rows of the matrices of the burn.")] = 2048,
    device: Annotated[
        str, typer.Option(help="Type of the cards, such as cuda. Default: the accelerator, or cpu.")
    ] = "",
    backend: Annotated[str, typer.Option(help="Backend of the process groups.")] = "gloo",
    interface: Annotated[str, typer.Option(help="Network interface for gloo.")] = "",
    python: arguments.Python = "",
    local: Annotated[bool, typer.Option("--local", help="Run all hosts' tests on this machine.")] = False,
    simulate: Annotated[
        int, typer.Option(min=0, help="Simulate this many nodes instead.", show_default=False)
    ] = 0,
    inject: Annotated[list[str] | None, typer.Option(help="A fault to practise on; repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="Of the choice of partners and groups.")] = 0,
) -> None:
    """Find faulty nodes, cards, links, racks, switches and rails with short tests."""
    import numpy as np

    from isthmus_cluster import inventory as inventories
    from isthmus_cluster.isolate import report, run
    from isthmus_cluster.isolate import simulate as simulation
    from isthmus_cluster.isolate.rounds import Runner, Topology
    from isthmus_cluster.isolate.search import Found, Settings
    from isthmus_cluster.isolate.search import isolate as search

    def search_with(topology: Topology, runner: Runner) -> Found:
        return search(topology, runner, settings, lambda each: print(report.progress_line(each), flush=True))

    with exit_on(ClusterError):
        try:
            settings = Settings(
                confidence=confidence,
                firing=firing,
                rounds=rounds,
                node_hours=node_hours,
                expected=expected,
                noise=noise,
                slow=slow,
                seed=seed,
            )
        except ValueError as error:
            raise fail(error, 2) from None
        if simulate:
            topology = Topology.regular(simulate)
            faults = [_parse_fault(each, simulate) for each in inject or []]
            random = np.random.default_rng(seed)
            found = search_with(topology, simulation.Simulator(topology, faults, noise=noise, random=random))
        else:
            hosts = inventories.read(inventory)
            topology = run.topology(hosts)
            names = [host.name for host in hosts.hosts]
            injected = dict(_parse_injection(each, names, topology.cards) for each in inject or [])
            load = run.Load(
                device=device or _device(local),
                backend=backend,
                matrix=matrix,
                timeout=timeout,
                step_timeout=step_timeout,
                interface=interface or ("lo" if local else ""),
            )
            with run.Processes(
                hosts, load, local=local, python=python or sys.executable, faults=injected, seed=seed
            ) as processes:
                found = search_with(topology, processes)
        print(report.text(found, topology))
        if output:
            report.write(found, topology, output)
    if found.verdicts:
        raise typer.Exit(3)


def _device(local: bool) -> str:
    """Return the type of the accelerator of this machine, which the others are taken to have as well."""
    import torch

    accelerator = None if local else torch.accelerator.current_accelerator(check_available=True)
    return accelerator.type if accelerator else "cpu"


def _parse_injection(text: str, names: list[str], cards: int) -> "tuple[int, Injected]":
    from isthmus_cluster.isolate.run import Injected

    match = _INJECTED.fullmatch(text)
    if not match or match["node"] not in names:
        raise ClusterError(
            f"--inject {text}: give a host of the inventory and a fault, such as {names[0]}=stop"
        )
    value = float(match["value"] or 0)
    firing = float(match["firing"] or 1)
    if match["kind"] == "corrupt":
        if value >= cards:
            raise ClusterError(f"--inject {text}: hosts have cards 0 to {cards - 1}")
        return names.index(match["node"]), Injected("corrupt", card=int(value), firing=firing)
    return names.index(match["node"]), Injected(match["kind"], seconds=value or 1.0, firing=firing)


def _parse_fault(text: str, nodes: int) -> "Fault":
    from isthmus_cluster.isolate.simulate import Fault

    match = _SIMULATED.fullmatch(text)
    if not match or int(match["first"]) >= nodes:
        raise ClusterError(
            f"--inject {text}: give a fault of {nodes} simulated nodes, such as node=3 or link=3-7"
        )
    second = int(match["second"]) if match["second"] else -1
    if match["kind"] in ("link", "card", "scale") and (
        second < 0 or (match["kind"] == "link" and second >= nodes)
    ):
        sign = "-" if match["kind"] == "link" else ":"
        raise ClusterError(
            f"--inject {text}: give a second number below {nodes}, such as {match['kind']}=3{sign}7"
        )
    firing = float(match["firing"] or 1)
    if match["kind"] == "scale":
        return Fault("scale", int(match["first"]), size=second, firing=firing)
    return Fault(match["kind"], int(match["first"]), second, firing=firing)
