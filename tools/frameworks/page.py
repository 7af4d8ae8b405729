"""Generate docs/results/frameworks.md: frameworks and popular programs under ``isthmus run``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.frameworks.programs import FRAMEWORKS, PROGRAMS, Program, name
from tools.suites import head, line

Row = dict[str, Any]
PINNED = Path(__file__).with_name("packages.txt")
INTRODUCTION = (
    "Made by `make frameworks MIRRORS=path`: programs of public repositories and of installed packages, unmodified, "
    "under `isthmus run` on the host chip, with one thread. Nothing is downloaded: weights are random, and data is "
    "generated in the program's own format (`tools/frameworks/data.py`) unless the repository contains it. The wheel "
    "of torchvision has its operators in a library that needs CUDA's, so `nms` is provided in Python. That of "
    "torchaudio has such a library too, and runs without it."
)
COMPARED = (
    "Each runs as it is under `isthmus run`, and `isthmus migrate verify --shim` compares it with the same program "
    "on the CPU, with the CPU's random numbers on both sides: losses, parameters, printed text, saved files. The "
    "difference is the largest relative one of all of these; 0 is equal to the bit. A program without an option for "
    "its length ends after the steps given."
)


def page(rows: dict[str, Row]) -> str:
    """Return the page as Markdown."""
    frameworks = [(each, rows[name(each)]) for each in FRAMEWORKS if name(each) in rows]
    programs = [(each, rows[name(each)]) for each in PROGRAMS if name(each) in rows]
    passed = sum(runs(row) for _, row in programs)
    exact = sum(row.get("verdict", {}).get("same", False) and not worst(row) for _, row in programs)
    parts = [
        "# Frameworks and popular programs",
        INTRODUCTION,
        "## Frameworks",
        "\n".join([*head("framework", "example", "result", "seconds"), *framework_lines(frameworks)]),
        *notes(frameworks),
        "## Programs that no test has",
        f"{passed} of {len(programs)} run; {exact} equal the CPU to the bit in everything that was compared.",
        COMPARED,
        "\n".join(
            [
                *head(
                    "program", "under `isthmus run`", "first and last loss", "losses compared", "difference"
                ),
                *program_lines(programs),
            ]
        ),
        *notes(programs),
        "## Command lines",
        "\n".join([*head("", "after `isthmus run`"), *command_lines([*frameworks, *programs])]),
    ]
    return "\n\n".join(parts) + "\n"


def version(package: str) -> str:
    """Return the pinned version of a package."""
    found = re.search(rf"(?m)^{re.escape(package.partition(' ')[0])}==(\S+)", PINNED.read_text())
    return found[1] if found else ""


def label(program: Program) -> str:
    """Return the place of a program: repository and commit, or the package that contains it."""
    script = name(program).partition(": ")[2]
    return f"{program.repository}@{program.revision}: `{script}`" if program.repository else f"`{script}`"


def runs(row: Row) -> bool:
    """Whether a program ended well; one that does not end by itself, in the comparison."""
    if "run" in row:
        return row["run"]["status"] == 0
    return not row["verdict"]["problem"]


def outcome(row: Row) -> str:
    """Return the result of a run in words."""
    found = row["run"]
    if found["tests"]:
        return ", ".join(f"{count} {kind}" for kind, count in found["tests"].items())
    losses = f"loss {' -> '.join(found['losses'])}" if found["losses"] else ""
    if found["status"] < 0:
        return ", ".join(filter(None, (f"cut off after {found['seconds']} s", losses)))
    return f"status {found['status']}" if found["status"] else losses or "ended, status 0"


def worst(row: Row) -> float:
    """Return the largest relative difference of what was compared."""
    return max((each["difference"] or 0.0 for each in row["verdict"].get("comparisons", [])), default=0.0)


def framework_lines(found: Iterable[tuple[Program, Row]]) -> Iterator[str]:
    """Yield the lines of the table of frameworks."""
    for program, row in found:
        package = f"{program.package} {version(program.package)}".strip()
        yield line(package, label(program), outcome(row), row["run"]["seconds"])


def program_lines(found: Iterable[tuple[Program, Row]]) -> Iterator[str]:
    """Yield the lines of the table of programs."""
    for program, row in found:
        ran = f"first {program.steps} steps" if "run" not in row else outcome(row).partition(" ->")[0]
        ran = "ended" if runs(row) and "run" in row else ran
        verdict = row["verdict"]
        sides: Sequence[Row] = verdict.get("runs", [])
        losses = [loss for record in sides[-1]["losses"] for loss in record] if sides else []
        shown = f"{losses[0]:.6g}, {losses[-1]:.6g}" if losses else ""
        compared = next(
            (each["compared"] for each in verdict.get("comparisons", []) if each["subject"] == "losses"), 0
        )
        difference = f"{worst(row):.2g}" if verdict.get("comparisons") else "not compared"
        yield line(label(program), ran, shown, compared, difference)


def notes(found: Iterable[tuple[Program, Row]]) -> Iterator[str]:
    """Yield the reasons of failures and differences, as a list."""
    lines = [f"- {name(program)}: {program.reason}" for program, _ in found if program.reason]
    if lines:
        yield "\n".join(lines)


def command_lines(found: Iterable[tuple[Program, Row]]) -> Iterator[str]:
    """Yield the command line of each program, with its folder and variables."""
    for program, _ in found:
        settings = "".join(
            f"{key}={value} " for key, value in program.settings.items() if not value.startswith("/")
        )
        place = "" if program.folder == "." else f" in `{program.folder}`"
        yield line(name(program).partition(": ")[0] + place, f"`{settings}{program.command}`")
