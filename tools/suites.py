"""Results of other projects' own tests: kept in a file while they arrive, and shown as tables by reason."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

COLUMNS = ("passed", "failed", "skipped", "timed out", "crashed", "not run", "not collected")
UNDECIDED = COLUMNS[3:]
OTHER = "other"
REASON_LENGTH = 300
Row = dict[str, Any]  # a file: ranks, file, seconds, and tests: outcome and reason by name


def earlier_results(results: Path) -> list[Row]:
    """Read the results of earlier runs; skip an incomplete line."""
    rows = []
    for line in results.read_text().splitlines() if results.is_file() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def reason_of(report: Any) -> str:
    """Return the last error of a traceback (with its location for a bare assertion), or the reason of a skip."""
    if report.skipped:
        found = report.longrepr
        text = found[2] if isinstance(found, tuple) else getattr(report, "wasxfail", "") or str(found)
        return str(text).removeprefix("Skipped: ")
    lines = str(report.longrepr).splitlines()
    errors = [
        re.sub(r"^\[rank\d+\]: +", "", line[1:].strip())
        for line in lines
        if line.startswith("E ")
        and not line.endswith("ChildFailedError:")  # torchrun's, after those of ranks
    ]
    lines = [line for line in lines if line.strip(" ^")]
    heads = [
        line for line in errors if line.partition(":")[0].rpartition(".")[2].endswith(("Error", "Exception"))
    ]
    error = (heads or errors or lines or ["?"])[-1 if heads else 0]
    if error.rstrip(": ") == "AssertionError":
        source = [line.strip() for line in lines if line.startswith("    ")]
        error = f"AssertionError: {source[-1] if source else ''}"
    return error


def reason(text: str, outcome: str, patterns: Mapping[str, str]) -> str:
    """Classify the reason given by a test: the first pattern that matches, else "other"."""
    if outcome in ("timed out", "crashed", "not run"):
        return outcome
    return next((kind for kind, pattern in patterns.items() if re.search(pattern, text)), OTHER)


def counts(rows: Iterable[Row]) -> Counter[str]:
    """Count tests by outcome."""
    return Counter(outcome for row in rows for outcome, _ in row["tests"].values())


def line(*cells: object) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def head(*cells: str) -> list[str]:
    """Return the first two lines of a Markdown table."""
    return [line(*cells), line(*["---"] * len(cells))]


def outcome_cells(found: Counter[str]) -> list[object]:
    """Return the cells passed, failed, skipped, cut off and not collected."""
    undecided = sum(found[each] for each in UNDECIDED[:3])
    return [*(found[each] for each in COLUMNS[:3]), undecided, found["not collected"]]


def reasons(rows: list[Row], outcomes: tuple[str, ...], patterns: Mapping[str, str]) -> Iterator[str]:
    """Yield table lines by missing requirement with test counts per world size, then the unclassified reasons."""
    worlds = sorted({row["ranks"] for row in rows})
    kinds: dict[str, Counter[int]] = defaultdict(Counter)
    others: dict[str, Counter[int]] = defaultdict(Counter)
    for row in rows:
        for outcome, text in row["tests"].values():
            if outcome in outcomes:
                kind = reason(text, outcome, patterns)
                kinds[kind][row["ranks"]] += 1
                if kind == OTHER:
                    # Text that depends on no machine.
                    plain = re.sub(r"\d{3,}", "N", re.sub(r"/\S*?/(?=build/)", "", text))
                    others[plain[:110].strip()][row["ranks"]] += 1
    yield from head("", *(f"{world} rank{'s' * (world > 1)}" for world in worlds))
    for kind, found in sorted(kinds.items(), key=lambda item: -item[1].total()):
        yield line(kind, *(found[world] for world in worlds))
    if others:
        yield "\nThe others:\n"
        yield from head("", *(f"{world}" for world in worlds))
        for text, found in sorted(others.items(), key=lambda item: -item[1].total()):
            yield line(f"`{text.replace('`', chr(39))}`", *(found[world] for world in worlds))


def file_cell(row: Row) -> str:
    """Return the outcomes of a file in words."""
    found = counts([row])
    details = [f"{found[each]} {each}" for each in COLUMNS[1:] if found[each]]
    return ", ".join([f"{found['passed']} passed", *details]) if found else "no tests"
