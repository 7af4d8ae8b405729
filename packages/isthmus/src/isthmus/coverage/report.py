"""The table and the JSON of ``isthmus ops --model``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from isthmus.coverage.record import Operator, Record
from isthmus_common.text import count

HEAD = ("operator", "calls", "route", "dtypes", "shapes", "reason")


def rows(operators: Sequence[Operator]) -> list[tuple[str, ...]]:
    """Return the cells of each operator, as :data:`HEAD` names them."""
    return [
        (each.name, str(each.calls), each.route, "; ".join(each.dtypes), each.shapes[0], _reason(each))
        for each in operators
    ]


def _reason(operator: Operator) -> str:
    parts = f"calls {', '.join(operator.parts)}" if operator.parts else ""
    outside = (
        ""
        if operator.in_opset or not operator.is_lacking
        else "not in the opset, so that no library can serve it"
    )
    return "; ".join(filter(None, (operator.reason, parts, outside)))


def summary(record: Record) -> list[str]:
    """Return lines with the number of operators and calls, by route, and of calls that depend on values."""
    calls: Counter[str] = Counter()
    for each in record.operators:
        calls[each.route] += each.calls
    lacking = [each for each in record.operators if each.is_lacking]
    names = {each.name for each in record.operators}
    by_route = ", ".join(f"{number} {route}" for route, number in calls.most_common())
    missed = count(sum(each.calls for each in lacking), "call")
    lines = [
        f"{count(len(names), 'operator')}, {count(calls.total(), 'call')}: {by_route}",
        f"without a kernel: {count(len({each.name for each in lacking}), 'operator')}, {missed}",
    ]
    if record.guessed:
        guessed = ", ".join(f"{name} ({number})" for name, number in sorted(record.guessed.items()))
        lines.append(f"results that depend on values were taken as if each element were 1: {guessed}")
    return lines


def to_json(record: Record, operators: Sequence[Operator]) -> dict[str, Any]:
    """Return the content of ``--json``."""
    return {
        "operators": [
            {
                "operator": each.name,
                "calls": each.calls,
                "route": each.route,
                "reason": each.reason,
                "lacking": each.is_lacking,
                "in_opset": each.in_opset,
                "dtypes": each.dtypes,
                "shapes": each.shapes,
                "parts": each.parts,
            }
            for each in operators
        ],
        "depending_on_values": record.guessed,
    }
