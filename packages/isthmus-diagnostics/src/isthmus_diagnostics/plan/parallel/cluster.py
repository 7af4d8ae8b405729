"""A cluster: what a card computes and holds, and what the links between cards carry."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isthmus_common.files import write_file
from isthmus_common.units import parse_size
from isthmus_diagnostics.plan.files import PlanError

# Bytes that a rank sends, over those of the whole tensor: Thakur et al., 2005, ring algorithms.
SENT = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "send": lambda n: 1.0,
}


@dataclass(frozen=True)
class Link:
    """The links among neighbouring cards.

    Attributes:
        ranks: neighbouring cards that it connects; 0: all others.
        latency: seconds of a small collective.
        bandwidth: bytes per second that each of these cards sends.
        operation: collective that these figures are of, such as ``all_gather``; "" for all others.
    """

    ranks: int
    latency: float
    bandwidth: float
    operation: str = ""


@dataclass(frozen=True)
class Cluster:
    """Cards of one kind.

    Attributes:
        cards: number of them.
        memory: bytes of each.
        flops: operations per second of a matrix product, by dtype.
        bandwidth: bytes per second that operators such as those of a SwiGLU read and write.
        links: those with fewer ranks first, and those of one operation before others.
        overhead: seconds of the host for the forward and backward of a layer, by a name of :meth:`delay` and ranks,
            such as ``dense1``, and those that parallelism adds, such as ``TP4``. Empty: hidden behind the device.
        cores: cards that compute at full speed at the same time; 0: all. Of host devices that share processors.
    """

    cards: int
    memory: int
    flops: dict[str, float]
    bandwidth: float
    links: Sequence[Link]
    overhead: dict[str, float] = field(default_factory=dict)
    cores: float = 0.0

    def rate(self, dtype: str) -> float:
        """Return the operations per second of a dtype.

        Raises:
            PlanError: they are not known.
        """
        if dtype not in self.flops:
            raise PlanError(
                f"the cluster has no flops.{dtype}; add it, or give --dtype {next(iter(self.flops))}"
            )
        return self.flops[dtype]

    def delay(self, name: str, ranks: int = 1) -> float:
        """Return the seconds of the host for a layer.

        Args:
            name: ``dense``, ``experts`` or ``expert`` (each local one); or what parallelism adds: ``TP``, ``CP``,
                ``EP`` or ``experts_TP``.
            ranks: of the group; the next larger one measured counts, or the largest.
        """
        found = ((re.fullmatch(rf"{name}(\d+)", key), value) for key, value in self.overhead.items())
        known = {int(match[1]): value for match, value in found if match}
        return known[min((n for n in known if n >= ranks), default=max(known))] if known else 0.0

    def seconds(self, name: str, size: float, ranks: int, span: int, *, of_layer: bool = False) -> float:
        """Return the time of a collective.

        Args:
            name: such as ``all_reduce``.
            size: bytes of the whole tensor.
            ranks: of the group.
            span: neighbouring cards that the group is part of.
            of_layer: whether it is inside a layer, whose overhead, if known, contains the latency.
        """
        if ranks == 1:
            return 0.0
        usable = [each for each in self.links if each.operation in (name, "")] or self.links
        link = next((each for each in usable if not each.ranks or each.ranks >= span), usable[-1])
        latency = 0.0 if of_layer and self.overhead else link.latency
        return latency + SENT[name](ranks) * size / link.bandwidth


def read(path: Path) -> Cluster:
    """Read a cluster from TOML.

    Raises:
        PlanError: the file cannot be read, or is not a cluster.
    """
    try:
        found = tomllib.loads(path.read_text())
        links = [_link(each) for each in found.pop("links", [])]
        flops = {
            str(name): _check_positive(f"flops.{name}", rate) for name, rate in found.pop("flops").items()
        }
        size = found.pop("memory")
        cluster = Cluster(
            cards=int(found.pop("cards")),
            memory=parse_memory(size) if isinstance(size, str) else int(size),
            flops=flops,
            bandwidth=_check_positive("bandwidth", found.pop("bandwidth")),
            links=sorted(links, key=lambda link: (link.ranks or 1 << 62, not link.operation)),
            overhead={str(name): float(each) for name, each in found.pop("overhead", {}).items()},
            cores=float(found.pop("cores", 0.0)),
        )
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}; give a cluster, or add --measure to write one") from None
    except KeyError as error:
        raise PlanError(f"{path}: {error.args[0]} is missing; it is needed to plan") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise PlanError(f"{path}: not a cluster: {error}") from None
    if found:
        raise PlanError(f"{path}: unknown entry {next(iter(found))!r}; remove it")
    if cluster.cards < 1 or (cluster.cards > 1 and not links):
        raise PlanError(
            f"{path}: {cluster.cards} cards and {len(links)} links; give 1 card or more, and [[links]]"
        )
    return cluster


def write(path: Path, cluster: Cluster) -> None:
    """Write a cluster as TOML.

    Raises:
        PlanError: the file cannot be written.
    """
    lines = [
        f"cards = {cluster.cards}",
        f"memory = {cluster.memory}  # bytes of a card",
        f"bandwidth = {cluster.bandwidth:.4g}  # bytes per second that operators such as SwiGLU's move",
        f"cores = {cluster.cores:.3g}  # cards that compute at full speed at the same time; 0: all",
        "",
        "[flops]  # per second, of a matrix product",
        *(f"{name} = {rate:.4g}" for name, rate in cluster.flops.items()),
        "",
        "[overhead]  # seconds of the host for a layer, by group and ranks",
        *(f"{name} = {seconds:.3g}" for name, seconds in cluster.overhead.items()),
    ]
    for link in cluster.links:
        lines += ["", "[[links]]", f"ranks = {link.ranks}"]
        lines += [f'operation = "{link.operation}"'] * bool(link.operation)
        lines += [f"latency = {link.latency:.3g}", f"bandwidth = {link.bandwidth:.4g}"]
    try:
        write_file(path, ("\n".join(lines) + "\n").encode())
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}; give a file in a folder that exists") from None


def parse_memory(text: str) -> int:
    """Return the bytes of a size such as 80GiB.

    Raises:
        ValueError: it is none.
    """
    size = parse_size(text)
    if not size:
        raise ValueError(f"memory {text!r} is not a size; give bytes or a number with GiB, such as 80GiB")
    return size


def _link(entry: dict[str, Any]) -> Link:
    operation = entry.get("operation", "")
    if operation and operation not in SENT:
        raise ValueError(f"unknown operation {operation!r} of a link; expected {', '.join(SENT)}")
    latency, bandwidth = float(entry["latency"]), _check_positive("bandwidth of a link", entry["bandwidth"])
    return Link(int(entry.get("ranks", 0)), latency, bandwidth, operation)


def _check_positive(name: str, value: Any) -> float:
    if not float(value) > 0:
        raise ValueError(f"{name} is {value}; it must be above 0")
    return float(value)
