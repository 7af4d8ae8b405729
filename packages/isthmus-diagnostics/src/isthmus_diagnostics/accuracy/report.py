"""The report of a comparison: text, JSON, a page."""

import math
from pathlib import Path
from typing import Any

from isthmus_common.files import write_file
from isthmus_common.html import render
from isthmus_common.tables import align_columns
from isthmus_diagnostics.accuracy.comparing import Comparison
from isthmus_diagnostics.accuracy.divergence import Guilty
from isthmus_diagnostics.accuracy.judging import Judged
from isthmus_diagnostics.accuracy.metrics import Distance
from isthmus_diagnostics.accuracy.reading import Content, Recorded

_ORDER = ("equal", "rounding", "differs", "only in A", "only in B")


def as_text(found: Comparison, top: int = 20) -> str:
    """Return the first difference and the calls around it."""
    head = f"{len(found.rows)} calls: " + ", ".join(
        f"{found.counts[verdict]} {verdict}" for verdict in _ORDER if found.counts[verdict]
    )
    if found.guilty is None:
        return f"{head}\nno call differs by more than rounding"
    table = [["call", "module", "operator", "verdict", "inputs", "outputs", "line"]]
    table += [_cells(row) for row in _rows_around(found, top)]
    text = f"{head}\n\n{describe_first_difference(found.guilty)}"
    return text + (f"\n\n{align_columns(table)}" if top else "")


def describe_first_difference(guilty: Guilty) -> str:
    """Return the first difference in a few lines."""
    state = "equal" if guilty.inputs_equal else "already different"
    place = guilty.call.place
    where = "".join((_ranks(guilty), f", step {place.step}", f" of {guilty.side}" if guilty.side else ""))
    lines = [f"first difference: {guilty.call}{where}", f"  {guilty.reason}; its inputs were {state}"]
    lines += [f"  in its place: {other}" for other in guilty.others]
    pair = guilty.judged.pair
    for title, named in (("input", pair.inputs()), ("result", pair.outputs())):
        for name, *sides in named:
            a, b = (_of_rank(parts, guilty.ranks) for parts in sides)
            lines += [f"  {title} {name}: A {a}", f"  {' ' * len(title)} {' ' * len(name)}  B {b}"]
    return "\n".join(lines)


def _ranks(guilty: Guilty) -> str:
    """Return the ranks on which a difference shows, in words; "" in jobs of one rank."""
    if not guilty.is_of_several:
        return ""
    if not guilty.ranks:
        return ", rank undecided"
    return f", rank{'s' * (len(guilty.ranks) > 1)} {', '.join(map(str, guilty.ranks))}"


def _of_rank(parts: list[Content], ranks: tuple[int, ...]) -> Content:
    """Return the part of the first of these ranks, or of the first rank."""
    return next((part for part in parts if part.rank.number in ranks), parts[0])


def _rows_around(found: Comparison, top: int) -> list[Judged]:
    assert found.guilty is not None
    place = found.rows.index(found.guilty.judged)
    first = max(0, place - top // 4)
    return found.rows[first : first + top]


def _cells(row: Judged) -> list[str]:
    call = row.pair.first
    phase = "" if call.place.phase == "forward" else f" ({call.place.phase})"
    return [
        str(call.number), call.place.module or "-", call.operator + phase, row.verdict,
        _error(row.input_error), _error(row.error), call.at,
    ]  # fmt: skip


def _error(value: float) -> str:
    return "0" if value == 0 else f"{value:.2e}"


def as_json(found: Comparison) -> dict[str, Any]:
    """Return everything as JSON."""
    return {
        "a": str(found.a),
        "b": str(found.b),
        "ranks": found.ranks,
        "counts": dict(found.counts),
        "first": None if found.guilty is None else _guilty_as_dict(found.guilty),
        "calls": [_row(row) for row in found.rows],
    }


def _guilty_as_dict(guilty: Guilty) -> dict[str, Any]:
    return {
        "side": guilty.side,
        "ranks": guilty.ranks,
        "reason": guilty.reason,
        "inputs_equal": guilty.inputs_equal,
        **_call(guilty.call),
        "others": [_call(other) for other in guilty.others],
        "shows_at": _row(guilty.judged),
    }


def _call(call: Recorded) -> dict[str, Any]:
    return {
        **call.place._asdict(),
        "operator": call.operator,
        "line": call.line,
        "library": call.library,
        "arguments": call.arguments,
    }


def _row(row: Judged) -> dict[str, Any]:
    pair = row.pair
    ranks = {side: [call.rank for call in calls] for side, calls in (("a", pair.a), ("b", pair.b))}
    document = {**_call(pair.first), "ranks": ranks, "verdict": row.verdict, "tolerance": row.tolerance}
    if pair.is_matched:
        document |= {
            "inputs": _distances(row.inputs, pair.inputs()),
            "outputs": _distances(row.outputs, pair.outputs()),
        }
    return document


def _distances(distances: dict[str, Distance], named: Any) -> dict[str, Any]:
    return {
        name: {**_finite(vars(distances[name])), "a": _content(a[0]), "b": _content(b[0])}
        for name, a, b in named
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Return values with None for NaN and infinity, which JSON has not."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }


def _content(content: Content) -> dict[str, Any]:
    document: dict[str, Any] = {"dtype": content.dtype, "shape": content.shape}
    if content.statistics is not None:
        document |= _finite(content.statistics._asdict())
    return document


class Node:
    """A module of the tree, with the worst of its calls.

    Attributes:
        name: its part of the path.
        rows: its own calls.
        children: by name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[Judged] = []
        self.children: dict[str, Node] = {}

    @property
    def error(self) -> float:
        """Largest error of a call here or below, as a multiple of its tolerance."""
        own = [row.error / row.tolerance if row.tolerance else row.error for row in self.rows]
        return max([*own, *(child.error for child in self.children.values())], default=0.0)

    @property
    def hue(self) -> int:
        """Colour: green up to the tolerance, red from a thousand times it."""
        error = self.error
        share = 0.0 if error <= 1 else min(1.0, math.log10(error) / 3 if math.isfinite(error) else 1.0)
        return round(130 * (1 - share))


def tree(rows: list[Judged]) -> Node:
    """Return the calls of the first step that differs, by module."""
    root = Node("job")
    for row in rows:
        node = root
        for part in filter(None, row.pair.first.place.module.split(".")):
            node = node.children.setdefault(part, Node(part))
        node.rows.append(row)
    return root


def write_page(path: Path, found: Comparison) -> None:
    """Write a page with the first difference and the tree of modules."""
    step = found.guilty.call.place.step if found.guilty else 0
    rows = [row for row in found.rows if row.pair.first.place.step == step]
    page = render(
        "isthmus_diagnostics/accuracy/report.html.j2",
        title=f"{found.a} against {found.b}",
        summary=as_text(found, 0),
        step=step,
        root=tree(rows),
        cells=_cells,
        guilty=found.guilty.judged if found.guilty else None,
    )
    write_file(path, page.encode())
