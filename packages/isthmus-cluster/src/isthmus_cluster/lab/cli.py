"""``isthmus cluster lab``: a cluster of network namespaces to practise on."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus_cluster.errors import ClusterError
from isthmus_common.exits import exit_on
from isthmus_common.text import count

if TYPE_CHECKING:
    from isthmus_cluster.lab.state import Lab

_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
app = typer.Typer(
    help="Make a cluster of network namespaces on this machine to practise on, with faults on demand. Needs root.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Folder = Annotated[Path, typer.Option("--folder", help="Folder of the lab.")]


@app.command()
def up(
    hosts: Annotated[int, typer.Option(min=1, max=64, help="Hosts.")] = 4,
    cards: Annotated[int, typer.Option(min=1, max=64, help="Host chips of each host.")] = 2,
    rate: Annotated[str, typer.Option(help="Rate of each host's link, such as 1gbit.")] = "",
    delay: Annotated[str, typer.Option(help="Delay of packets to other hosts, such as 1ms.")] = "",
    name: Annotated[str, typer.Option(help="Beginning of the names of its namespaces.")] = "lab",
    folder: Folder = Path("lab"),
) -> None:
    """Make the hosts, and the inventory FOLDER/cluster.yaml for the other commands."""
    from isthmus_cluster.lab import network, state
    from isthmus_common.files import make_folder

    with exit_on(ClusterError):
        if not _NAME.fullmatch(name):
            raise ClusterError(f"--name {name}: expected lower-case letters, digits and '-', a letter first")
        made = state.Lab(folder, name, hosts, cards)
        made.rate = rate and state.quantity("rate", rate)
        made.delay = delay and state.quantity("delay", delay)
        network.check()
        taken = [each for each in map(made.namespace, made.names) if (network.NAMESPACES / each).exists()]
        if taken and not state.find(folder):
            raise ClusterError(f"{taken[0]}: this namespace exists; give another --name")
        make_folder(folder.absolute())
        with _lock(folder):
            if state.find(folder):
                raise ClusterError(
                    f"{folder}: has a lab; `isthmus cluster lab down --folder {folder}` removes it"
                )
            made.write()  # first, so that `down` finds what a crash leaves
            try:
                network.make(made)
            except BaseException:
                state.forget(made)
                raise
            made.write_inventory()
        print(
            f"{made.inventory}: {count(hosts, 'host')}, {count(hosts * cards, 'card')}, interface {state.INTERFACE}"
        )


@app.command()
def down(folder: Folder = Path("lab")) -> None:
    """End all processes in a lab and remove it, also after a crash; its logs and inventory remain."""
    from isthmus_cluster.lab import cards, network, state

    with exit_on(ClusterError):
        found = state.find(folder)
        if not found:
            print(f"{folder}: no lab")
            return
        network.check()
        with _lock(folder):
            for host in found.names:
                cards.end(found.namespace(host), found.cards)
            network.remove(found)
            state.forget(found)
        print(f"{folder}: removed {count(found.hosts, 'host')}")


@app.command()
def status(folder: Folder = Path("lab")) -> None:
    """Print the hosts, their processes and the faults."""
    from isthmus_cluster.lab import cards, network
    from isthmus_common.tables import print_table

    with exit_on(ClusterError):
        lab = _find(folder)
        rows = []
        for host in lab.names:
            space = lab.namespace(host)
            is_up = (network.NAMESPACES / space).exists()
            faults = [f"card{card} {kind}" for kind, card in cards.find(space).values()]
            faults += [f"to {other}: {_words(fault)}" for other, fault in lab.faults(host).items()]
            rows.append(
                (
                    host,
                    space if is_up else f"{space} (absent)",
                    lab.address(host),
                    str(lab.cards),
                    str(len(list(network.processes(space)))),
                    ", ".join(sorted(faults)),
                )
            )
        print_table(("host", "namespace", "address", "cards", "processes", "faults"), rows)


@app.command()
def fault(
    where: Annotated[
        str, typer.Argument(metavar="HOST|link", help="A host such as host2, or the word link.")
    ],
    part: Annotated[
        str,
        typer.Argument(metavar="CARD|HOST-HOST", help="A card such as card1, or a link such as host1-host3."),
    ],
    what: Annotated[
        str,
        typer.Argument(
            metavar="FAULT",
            help="Of a card: stop, slow (slow=4: a quarter of the time) or corrupt (corrupt=10: bits flipped in a "
            "second in memory of the host chip). Of a link: down, or rate=1mbit, loss=5%, delay=10ms, joined by ','.",
        ),
    ],
    folder: Folder = Path("lab"),
) -> None:
    """Make a card or a link faulty, for the running job and later ones."""
    from isthmus_cluster.lab import cards, network

    with _change_lab(folder) as lab:
        if where == "link":
            name = _link(lab, part)
            lab.links[name] = _link_fault(what)
            if {"loss", "delay"} & lab.links[name].keys():
                network.need_netem(lab)
            lab.write()
            for host in name.split("-"):
                network.shape(lab, host)
        else:
            card, (kind, value) = _card(lab, where, part), _card_fault(what)
            cards.end(lab.namespace(where), lab.cards, card)
            cards.start(kind, lab.namespace(where), card, value, lab.folder / where / "faults.log")


@app.command()
def heal(
    where: Annotated[str, typer.Argument(metavar="HOST|link", show_default=False)] = "",
    part: Annotated[str, typer.Argument(metavar="CARD|HOST-HOST", show_default=False)] = "",
    folder: Folder = Path("lab"),
) -> None:
    """End the faults of a card or a link. Default: all faults."""
    from isthmus_cluster.lab import cards, network

    with _change_lab(folder) as lab:
        if where == "link":
            healed = [_link(lab, part)]
        elif where:
            healed = []
            cards.end(lab.namespace(where), lab.cards, _card(lab, where, part))
        else:
            healed = list(lab.links)
            for host in lab.names:
                cards.end(lab.namespace(host), lab.cards)
        for name in healed:
            lab.links.pop(name, None)
        lab.write()
        for host in {end for name in healed for end in name.split("-")}:
            network.shape(lab, host)


@contextlib.contextmanager
def _change_lab(folder: Path) -> "Iterator[Lab]":
    """Yield the lab of a folder to a command that changes it; its errors are one line."""
    from isthmus_cluster.lab import network

    with exit_on(ClusterError):
        lab = _find(folder)
        network.check()
        with _lock(folder):
            yield lab


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    from isthmus_common.files import lock_file

    with lock_file(folder) as is_free:
        if not is_free:
            raise ClusterError(f"{folder}: another command changes this lab; repeat when it has ended")
        yield


def _find(folder: Path) -> "Lab":
    from isthmus_cluster.lab import state

    found = state.find(folder)
    if not found:
        raise ClusterError(f"{folder}: no lab; `isthmus cluster lab up --folder {folder}` makes one")
    return found


def _link(lab: "Lab", part: str) -> str:
    """Return the name of a link, its ends in the order of the hosts."""
    ends = part.split("-")
    if len(ends) != 2 or ends[0] == ends[1] or not set(ends) <= set(lab.names):
        raise ClusterError(
            f"{part or 'link'}: expected two of {lab.names[0]} to {lab.names[-1]}, such as host1-host2"
        )
    return "-".join(sorted(ends, key=lab.names.index))


def _card(lab: "Lab", host: str, part: str) -> int:
    if host not in lab.names:
        raise ClusterError(f"{host}: unknown host; expected {lab.names[0]} to {lab.names[-1]}, or link")
    known = [f"card{index}" for index in range(lab.cards)]
    if part not in known:
        raise ClusterError(f"{part or host}: expected a card of {host}, {known[0]} to {known[-1]}")
    return known.index(part)


def _card_fault(what: str) -> tuple[str, float]:
    from isthmus_cluster.lab.cards import KINDS

    kind, equals, given = what.partition("=")
    match = re.fullmatch(r"\d{1,3}(\.\d+)?", given) if equals else None
    value = float(match[0]) if match else 0.0
    if kind not in KINDS or (equals and (kind == "stop" or not 1 <= value <= 100)):
        raise ClusterError(f"{what}: expected stop, slow, corrupt, slow=N or corrupt=N, N from 1 to 100")
    return kind, value or KINDS[kind]


def _link_fault(what: str) -> dict[str, str]:
    from isthmus_cluster.lab.state import quantity

    if what == "down":
        return {"down": ""}
    values = dict(each.partition("=")[::2] for each in what.split(","))
    if not values.keys() <= {"rate", "loss", "delay"}:
        raise ClusterError(f"{what}: expected down, or rate=1mbit, loss=5% and delay=10ms joined by ','")
    return {name: quantity(name, value) for name, value in values.items()}


def _words(fault: dict[str, str]) -> str:
    return " ".join("=".join(filter(None, each)) for each in fault.items())
