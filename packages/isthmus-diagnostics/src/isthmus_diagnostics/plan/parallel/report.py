"""Ranks the layouts of a model on a cluster, and prints them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from isthmus_common.tables import align_columns
from isthmus_common.text import count
from isthmus_common.units import GIB
from isthmus_diagnostics.plan.parallel import memory, speed
from isthmus_diagnostics.plan.parallel.cluster import Cluster
from isthmus_diagnostics.plan.parallel.layouts import Layout, layouts, problem
from isthmus_diagnostics.plan.parallel.memory import Memory
from isthmus_diagnostics.plan.parallel.model import Model

HEAD = "rank TP PP VPP CP EP DP micro recompute".split()


@dataclass(frozen=True)
class Candidate:
    """A layout with its predictions.

    Attributes:
        layout: the layout.
        memory: of the pipeline stage that needs most.
        times: seconds of a step by term.
    """

    layout: Layout
    memory: Memory
    times: dict[str, float]

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        return sum(self.times.values())


@dataclass(frozen=True)
class Ranking:
    """All layouts: those that fit, the fastest first, and why others do not."""

    fits: list[Candidate]
    infeasible: list[tuple[Layout, str]]


def rank(model: Model, cluster: Cluster, global_batch: int) -> Ranking:
    """Predict every layout; of equally fast ones, that with less memory is first."""
    fits, infeasible = [], []
    for layout in layouts(model, cluster.cards, global_batch):
        reason = problem(model, layout)
        if not reason:
            found = memory.peak(model, layout)
            if found.total <= cluster.memory:
                fits.append(Candidate(layout, found, speed.step(model, layout, cluster)))
                continue
            reason = f"needs {_gib(found.total)} GiB of {_gib(cluster.memory)} GiB"
        infeasible.append((layout, reason))
    fits.sort(key=lambda each: (each.seconds, each.memory.total))
    return Ranking(fits, infeasible)


def table(ranking: Ranking, top: int) -> str:
    """Return the fastest layouts, one a line."""
    head = [*HEAD, "step s", "GiB"]
    rows = [
        [str(number), *_cells(each.layout), f"{each.seconds:.3g}", _gib(each.memory.total)]
        for number, each in enumerate(ranking.fits[:top], 1)
    ]
    return align_columns([head, *rows], figures=True)


def list_infeasible(ranking: Ranking) -> str:
    """Return every layout that cannot run with the reason, one a line."""
    rows = [[*_cells(layout), reason] for layout, reason in ranking.infeasible]
    return align_columns([[*HEAD[1:], "reason"], *rows])


def summary(ranking: Ranking) -> str:
    """Return how many layouts fit, and the commonest reasons of those that do not."""
    reasons: dict[str, int] = {}
    for _, reason in ranking.infeasible:
        kind = "more memory than a card has" if reason.startswith("needs") else reason
        reasons[kind] = reasons.get(kind, 0) + 1
    lines = [f"{count(len(ranking.fits), 'layout')} fit, {len(ranking.infeasible)} do not:"]
    commonest = sorted(reasons.items(), key=lambda each: -each[1])[:5]
    return "\n".join([*lines, *(f"  {number}: {reason}" for reason, number in commonest)])


def explain(model: Model, candidate: Candidate) -> str:
    """Return the terms of a prediction."""
    found, layout = candidate.memory, candidate.layout
    total, seconds = found.total, candidate.seconds
    parts = [["memory", "GiB", "%"]]
    parts += [[name, _gib(size), f"{100 * size / total:.1f}"] for name, size in found.terms.items()]
    parts += [["total", _gib(total), "100.0"]]
    layer = [["saved by a layer for a micro-batch", "MiB"]]
    layer += [[name, f"{size / (1 << 20):.3g}"] for name, size in found.layer.items()]
    times = [["time", "ms", "%"]]
    times += [[name, f"{1e3 * t:.3g}", f"{100 * t / seconds:.1f}"] for name, t in candidate.times.items()]
    times += [["total", f"{1e3 * seconds:.4g}", "100.0"]]
    pieces = found.in_flight
    title = (
        f"{' '.join(f'{n} {c}' for n, c in zip(HEAD[1:], _cells(layout), strict=True))}: "
        f"stage {found.stage} of {layout.pp} needs most memory; {layout.micro_batches} micro-batches, "
        f"{pieces} {'parts of them ' if layout.vpp > 1 else ''}in flight, "
        f"{model.layers // (layout.pp * layout.vpp)} layers each"
    )
    return "\n\n".join([title, *(align_columns(each, figures=True) for each in (parts, layer, times))])


def as_json(model: Model, cluster: Cluster, ranking: Ranking) -> dict[str, Any]:
    """Return everything as data: bytes and seconds."""
    return {
        "model": {**asdict(model), "parameters": model.parameters},
        "cluster": asdict(cluster),
        "layouts": [
            {
                **asdict(each.layout),
                "seconds": each.seconds,
                "times": each.times,
                "bytes": round(each.memory.total),
                "memory": {name: round(size) for name, size in each.memory.terms.items()},
                "stage": each.memory.stage,
            }
            for each in ranking.fits
        ],
        "infeasible": [{**asdict(layout), "reason": reason} for layout, reason in ranking.infeasible],
    }


def _cells(layout: Layout) -> Sequence[str]:
    sizes = layout.tp, layout.pp, layout.vpp, layout.cp, layout.ep, layout.dp, layout.micro_batch
    return [*map(str, sizes), layout.recompute]


def _gib(size: float) -> str:
    return f"{size / GIB:.3g}" if size < 100 * GIB else f"{size / GIB:.0f}"
