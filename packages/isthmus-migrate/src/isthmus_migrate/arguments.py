"""Options that several commands of ``isthmus migrate`` share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus_common.exits import fail
from isthmus_common.progress import say

if TYPE_CHECKING:
    from isthmus_migrate.trace.evidence import Evidence

TARGETS = ("chip", "npu", "xpu", "cuda")
FAIL_ON = ("automatic", "review", "manual", "never")

Paths = Annotated[
    list[Path], typer.Argument(help="Folders, files or notebooks of one project.", show_default=False)
]
Target = Annotated[str, typer.Option(help="chip, npu, xpu or cuda; by default any accelerator.")]
FailOn = Annotated[
    str,
    typer.Option(
        help="Exit with 1 on findings of this severity or above: automatic, review, manual or never."
    ),
]
Record = Annotated[
    Path | None,
    typer.Option(
        help="Decide what the source does not show by this record of `isthmus migrate trace`.",
        show_default=False,
    ),
]


def mistake(paths: Sequence[Path], target: str, fail_on: str) -> str:
    """Return the first mistake in shared options in one line, or ""."""
    for path in paths:
        if not path.exists():
            return f"{path}: no such file or folder"
    for option, value, choices in (("--target", target or "chip", TARGETS), ("--fail-on", fail_on, FAIL_ON)):
        if value not in choices:
            return f"{option} {value}: choose from {', '.join(choices)}"
    return ""


def evidence(record: Path | None, paths: Sequence[Path]) -> Evidence | None:
    """Read a record and compare it with the sources; print one line for each file that it does not fit.

    Raises:
        typer.Exit: the record cannot be read.
    """
    if record is None:
        return None
    from isthmus_migrate.flow.run_record import check
    from isthmus_migrate.source.files import tree
    from isthmus_migrate.trace.evidence import EvidenceError, load

    try:
        checked = check(load(record), tree(paths).files)
    except EvidenceError as error:
        raise fail(f"--evidence {error}", 2) from None
    for line in checked.refused:
        say(f"{record}: {line}")
    return checked.evidence
