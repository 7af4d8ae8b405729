"""The view as text."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from isthmus_cluster.monitor import table
from isthmus_cluster.watch.faults import spans
from isthmus_cluster.watch.state import Collective, Rank, View
from isthmus_common.tables import align_columns
from isthmus_common.units import format_step_time

_BARS = "▁▂▃▄▅▆▇█"
_SHOWN = 20  # columns of the history
# States that a person on duty looks for first.
_ORDER = ("silent", "absent", "running", "ended", "collective")


def text(view: View, most: int | None = None) -> str:
    """Return the view as plain text.

    Args:
        view: what to show.
        most: rows of each table; None: all.
    """
    return "\n".join(_lines(view, most))


def _lines(view: View, most: int | None) -> Iterator[str]:
    yield f"{time.strftime('%H:%M:%S', time.localtime(view.time))}  {view.summary}  {view.folder}"
    yield from (f"! {each}" for each in view.problems)
    if view.collectives:
        rows = [["in flight", "group", "for", "ranks in it", "missing"]]
        rows += [_collective(each, view.ranks) for each in view.collectives]
        yield from _table("Collectives", rows, most)
    if view.ranks:
        usual = view.usual[0]
        rows = [["rank", "host", "step", "step time", "without collectives", "history", "state", "line"]]
        ranks = sorted(view.ranks, key=lambda each: _ORDER.index(each.state)) if most else view.ranks
        rows += [_rank(each, view, usual) for each in ranks]
        scale = f" (history: ▁ half the median of {_time(usual)} or less, █ twice or more)" if usual else ""
        yield from _table(f"Ranks{scale}", rows, most)
    if view.cards:
        yield from _table("Cards", [table.HEAD, *map(list, table.rows(view.cards))], most)
    if view.events:
        rows = [["at", "kind", "rank", "step", "what"]]
        for event in view.events:
            at = time.strftime("%H:%M:%S", time.localtime(event.time))
            rows.append([at, event.kind, event.where, str(event.step) if event.step >= 0 else "", event.text])
        yield from _table("Faults, and what was done", rows, most)


def _table(title: str, rows: list[list[str]], most: int | None) -> Iterator[str]:
    yield f"\n{title}"
    yield align_columns(rows[: most and most + 1])
    if most and len(rows) > most + 1:
        yield f"and {len(rows) - most - 1} more"


def _collective(found: Collective, ranks: list[Rank]) -> list[str]:
    missing = spans(found.missing) or "none"
    if len(found.missing) == 1:
        missing += f" ({ranks[found.missing[0]].host}, {ranks[found.missing[0]].doing})"
    return [found.name, found.group, f"{found.seconds:.0f} s", spans(found.ranks), missing]


def _rank(found: Rank, view: View, usual: float) -> list[str]:
    values = [each.step[found.rank] for each in view.columns[-_SHOWN:] if found.rank < len(each.step)]
    history = "".join(_bar(each, usual) for each in values)
    times = _time(1000 * found.step_time), _time(1000 * found.own_time)
    step = str(found.step) if found.step >= 0 else ""
    return [str(found.rank), found.host, step, *times, history, found.doing, found.line]


def _bar(value: float, usual: float) -> str:
    if value <= 0 or usual <= 0:
        return "x" if value < 0 else " "
    place = (math.log2(value / usual) + 1) / 2  # 0 to 1
    return _BARS[min(len(_BARS) - 1, max(0, int(place * len(_BARS))))]


def _time(ms: float) -> str:
    if ms <= 0:
        return ""
    return format_step_time(ms / 1000, exact=True)
