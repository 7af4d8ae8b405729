"""The generated page docs/results/migrate-corpus.md: what public scripts showed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

Row = dict[str, Any]


def outcome(row: Row) -> str:
    """What became of a script, in a line."""
    if row["needs"]:
        return f"not run: needs {row['needs']}"
    return ", ".join(f"{device} {verdict(found)}" for device, found in row["verdicts"].items())


def verdict(found: Row) -> str:
    """One device's: equal, or why not."""
    if found["same"]:
        difference = found["loss_difference"]
        return "equal" if not difference else f"equal ({difference:.1g})"
    if found["problem"]:
        return found["problem"]
    what = "; ".join(found["differing"])
    return (
        f"the original differs from itself ({what})" if found["repeats"] is False else f"DIFFERENT ({what})"
    )


def _reason(row: Row) -> str:
    if row["needs"]:
        return f"not run: needs {row['needs']}"
    said = re.sub(r"\x1b\[[\d;]*m", "", row["verdicts"]["chip"]["problem"].partition("status 1: ")[2])
    return f"fails as it is: {said.partition('. ')[0]}"


def _line(*cells: object) -> str:
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _head(*cells: str) -> list[str]:
    return [_line(*cells), _line(*["---"] * len(cells))]


def _table(rows: Iterable[Row]) -> Iterator[str]:
    yield from _head("script", "findings", "changes", "steps", "losses", "chip", "CPU")
    for row in rows:
        file = row["name"].removeprefix(f"{row['repository']}/")
        findings = ", ".join(f"{number} {kind}" for kind, number in sorted(row["findings"].items())) or "none"
        changes = row["conversion"]["changes"]
        if row["needs"] or _fails(row):
            yield _line(file, findings, changes, "", "", _reason(row), "")
            continue
        chip, cpu = row["verdicts"]["chip"], row["verdicts"]["cpu"]
        yield _line(file, findings, changes, chip["steps"], chip["losses"], verdict(chip), verdict(cpu))


def _fails(row: Row) -> bool:
    """Whether the original itself does not run, so that there is nothing to compare."""
    return all(found["problem"].startswith("the original") for found in row["verdicts"].values())


def _totals(rows: list[Row]) -> str:
    ran = [row for row in rows if not row["needs"] and not _fails(row)]
    failing = sum(not row["needs"] and _fails(row) for row in rows)
    equal = {device: sum(row["verdicts"][device]["same"] for row in ran) for device in ("chip", "cpu")}
    parsed = sum(row["parses"] for row in rows)
    again = sum(row["conversion"]["idempotent"] for row in rows)
    repositories = len({row["repository"] for row in rows})
    lacking = len(rows) - len(ran) - failing
    return (
        f"{len(rows)} scripts of {repositories} repositories: {parsed} parse, all of these convert to source that "
        f"compiles, and a second conversion changes nothing in {again}. {len(ran)} could be compared: the converted "
        f"script equals the original in {equal['chip']} on the chip, and in {equal['cpu']} where the CPU is all "
        f"there is. {failing} fail as they are on this PyTorch, and {lacking} need what is not here."
    )


def page(rows: list[Row]) -> str:
    """The page as Markdown."""
    parts = [
        "# Public scripts",
        "Made by `make migrate-corpus MIRRORS=path`: public CUDA training scripts through `isthmus migrate "
        "analyse`, `convert` and `verify`. The scripts are not in this repository and were not edited. Data sets are "
        "replaced by made ones of the same format. The converted script is compared with the original, in which the "
        "CPU stands for CUDA, over the same optimizer steps: losses, parameters, random numbers and printed numbers, "
        "within 1e-6 relative in float32. Where the CPU is all there is, both sides go without `--cuda`; a script "
        "that numbers its devices (`model.to(0)`, `device_count() // n`) asks for an accelerator there, which is no "
        "matter of CUDA. distributed/ddp prints its local rank, which the converted script takes from torchrun.",
        _totals(rows),
    ]
    for repository in dict.fromkeys(row["repository"] for row in rows):
        own = [row for row in rows if row["repository"] == repository]
        parts += [f"## {repository}", f"Revision `{own[0]['revision']}`.", "\n".join(_table(own))]
    left = [f"- {row['name']}: {line}" for row in rows for line in row["conversion"]["left"]]
    if left:
        parts += ["## What is left to a person", "\n".join(left)]
    residuals = [
        f"- {row['name']}: `{each}`"
        for row in rows
        for each in row.get("verdicts", {}).get("chip", {}).get("residuals", ())
    ]
    if residuals:
        parts += ["## References to CUDA that a converted script still executed", "\n".join(residuals)]
    return "\n\n".join(parts) + "\n"
