"""The pages of docs/results/operators, made from the opset."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from isthmus import opset
from isthmus.opset import dtypes as dt
from isthmus.opset.operator import Operator, Tolerance
from isthmus.opset.outside import OUTSIDE
from isthmus.opset.schema import parse

_HEAD = "<!-- made by `python -m tools.opset.generate` -->\n"


def pages(table: dict[str, Any], models: dict[str, list[str]]) -> dict[str, str]:
    """File names and texts: one page for each family, and the coverage table."""
    families: dict[str, list[Operator]] = {family: [] for family in opset.FAMILIES}
    for operator in opset.operators().values():
        families[operator.family].append(operator)
    made = {f"{family}.md": _page(family, found, table) for family, found in families.items()}
    return {**made, "README.md": _coverage(families, table, models)}


def _page(family: str, operators: Iterable[Operator], table: dict[str, Any]) -> str:
    parts = [_HEAD, f"# Operators: {family}\n"]
    for operator in operators:
        record = table[operator.name]
        called = ", ".join(record["models"])
        served = ", ".join(f"`{each}`" for each in record["variants"])
        rows = [
            f"## {operator.name}\n",
            f"```\n{record['schema']}\n```\n",
            f"- a kernel takes: {_arguments(record['schema'])}",
            f"- dtypes: {_dtypes(operator.dtypes)}",
            f"- shape: `{operator.shape}`; dtype: `{operator.dtype}`",
            *[f"- tolerance{_tolerances(*row)}" for row in _grouped(operator.tolerance)],
        ]
        if operator.law:
            rows[-1] = "- random: the law of the result is tested, not its values"
        rows += (
            [f"- differentiable: {', '.join(record['differentiable'])}"] if record["differentiable"] else []
        )
        rows += [f"- also serves {served}"] if served else []
        rows += [f"- called by a training step of {called}"] if called else []
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


def _arguments(text: str) -> str:
    schema = parse(text)
    given = [a.name for a in schema.inputs]
    return ", ".join(["context", *given, *[f"**{a.name}**" for a in schema.outputs]])


_SETS = {dt.ALL: "all", dt.NUMBERS: "numbers", dt.FLOATS: "floats", dt.INTEGERS: "integers"}


def _dtypes(names: tuple[str, ...]) -> str:
    return _SETS.get(names) or ", ".join(names)


def _grouped(table: dict[str, Tolerance]) -> list[tuple[tuple[str, ...], Tolerance]]:
    """Dtypes of equal tolerance together; integers, which are exact, only if there is nothing else."""
    found: dict[Tolerance, list[str]] = {}
    for dtype, limit in table.items():
        found.setdefault(limit if dtype in dt.FLOATS else opset.operator.EXACT, []).append(dtype)
    rows = [(tuple(names), limit) for limit, names in found.items()]
    floats = [row for row in rows if set(row[0]) & set(dt.FLOATS)]
    return floats or rows


def _tolerances(dtypes: tuple[str, ...], limit: Tolerance) -> str:
    floats = [each for each in dtypes if each in dt.FLOATS]
    which = f" ({', '.join(floats)})" if floats and set(floats) != set(dt.FLOATS) else ""
    if not limit.ulp and not limit.accumulate:
        return f"{which}: exact"
    parts = [f"{limit.ulp:g} ulp"] if limit.ulp else []
    parts += [f"{limit.accumulate:g} eps of the magnitude"] if limit.accumulate else []
    return f"{which}: {' + '.join(parts)} ({limit.reason})"


def _coverage(
    families: dict[str, list[Operator]], table: dict[str, Any], models: dict[str, list[str]]
) -> str:
    names = sorted({model for found in models.values() for model in found})
    lines = [
        _HEAD,
        "# The opset\n",
        f"{len(table)} operators, which serve {sum(1 + len(r['variants']) for r in table.values())} overloads of "
        "PyTorch. A column names the model whose training step calls the operator.\n",
        f"| operator | family | dtypes | core | {' | '.join(names)} |",
        f"|---|---|---|---|{'---|' * len(names)}",
    ]
    for family, operators in families.items():
        for operator in operators:
            record = table[operator.name]
            marks = ["x" if model in record["models"] else "" for model in names]
            core = "x" if "core" in record["tags"] else ""
            lines.append(
                f"| [{operator.name}]({family}.md) | {family} | {_dtypes(operator.dtypes)} | {core} | "
                f"{' | '.join(marks)} |"
            )
    lines += ["\n## No kernel needed\n", "| operator | why |", "|---|---|"]
    lines += [f"| aten::{name} | {why} |" for name, why in sorted(OUTSIDE.items())]
    return "\n".join(lines) + "\n"
