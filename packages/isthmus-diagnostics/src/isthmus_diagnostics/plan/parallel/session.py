"""Run ``isthmus plan parallel``."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from isthmus_common.files import write_file
from isthmus_common.progress import say
from isthmus_diagnostics.plan.files import PlanError
from isthmus_diagnostics.plan.parallel import cluster as clusters
from isthmus_diagnostics.plan.parallel import emit, model, report


@dataclass(frozen=True)
class Request:
    """The options of the command; 0 and "" are those that were not given."""

    model: Path
    cluster: Path
    measure: int = 0
    cards: int = 0
    memory: str = ""
    global_batch: int = 256
    seq_length: int = 0
    dtype: str = ""
    top: int = 10
    explain: int = 0
    emit: str = ""
    infeasible: bool = False
    json_file: Path | None = None


def run(request: Request) -> str:
    """Rank the layouts; return what the command prints.

    Raises:
        PlanError: a file or an option is wrong, or no layout fits.
    """
    _check(request)
    shape = model.read(request.model, request.seq_length or None, request.dtype)
    cluster = _cluster(request)
    ranking = report.rank(shape, cluster, request.global_batch)
    if request.json_file:
        _write(request.json_file, report.as_json(shape, cluster, ranking))
    if request.infeasible:
        return report.list_infeasible(ranking)
    if not ranking.fits:
        least = f"{report.summary(ranking)}\n".replace("\n", "; ").strip("; ")
        raise PlanError(f"no layout fits: {least}; give more --cards or --memory, or another --global-batch")
    number = request.explain or 1
    if number > len(ranking.fits):
        raise PlanError(f"--explain {number}: only {len(ranking.fits)} layouts fit")
    chosen = ranking.fits[number - 1]
    if request.emit:
        return emit.emit(request.emit, shape, chosen.layout)
    if request.explain:
        return report.explain(shape, chosen)
    return f"{report.table(ranking, request.top)}\n{report.summary(ranking)}"


def _check(request: Request) -> None:
    for name in ("measure", "cards", "explain", "seq_length"):
        if getattr(request, name) < 0:
            raise PlanError(f"--{name.replace('_', '-')} {getattr(request, name)}: give 1 or more")
    for name in ("global_batch", "top"):
        if getattr(request, name) < 1:
            raise PlanError(f"--{name.replace('_', '-')} {getattr(request, name)}: give 1 or more")


def _cluster(request: Request) -> clusters.Cluster:
    if request.measure:
        from isthmus_diagnostics.plan.parallel import probe

        clusters.write(request.cluster, probe.measure(request.measure, say))
    found = clusters.read(request.cluster)
    if request.cards > 1 and not found.links:
        raise PlanError(f"--cards {request.cards}: {request.cluster} has no [[links]]; add them")
    if request.cards:
        found = replace(found, cards=request.cards)
    if request.memory:
        try:
            found = replace(found, memory=clusters.parse_memory(request.memory))
        except ValueError as error:
            raise PlanError(f"--memory: {error}") from None
    return found


def _write(path: Path, content: object) -> None:
    try:
        write_file(path, (json.dumps(content, indent=1) + "\n").encode())
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}; give a file in a folder that exists") from None
