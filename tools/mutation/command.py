"""The mutation command: console output, JSON file, page, exit status."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus._support.files import write_file
from isthmus._support.progress import Bar, say
from isthmus._support.tables import aligned
from isthmus.conformance import cache
from isthmus.conformance.golden import Reader
from tools.mutation.draw import draw, named
from tools.mutation.mutant import Mutant
from tools.mutation.page import percent, write_page
from tools.mutation.run import Runner, Selection
from tools.mutation.score import summary, unused_proofs

OF_A_CLASS, IN_TOTAL = 0.95, 0.98
_FIELDS = ("mutants", "caught", "survived", "equivalent")


@dataclass(frozen=True)
class Options:
    """What to try.

    Attributes:
        pattern: pattern of operator names.
        family: only this family; "" for all.
        golden: folder of golden data; None for the cache, where it is generated if absent.
        seed: seed of the choice of mutants.
        per_class: number of mutants of each class; 0 for all.
        mutants: output of an earlier run whose mutants are tried again; None to draw.
        against: output of an earlier run, to print its score beside this one; None for none.
        output: JSON file to write; None for none.
        page: page to write; None for none.
        jobs: number of processes.
    """

    pattern: str = "*"
    family: str = ""
    golden: Path | None = None
    seed: int = 1
    per_class: int = 40
    mutants: Path | None = None
    against: Path | None = None
    output: Path | None = None
    page: Path | None = None
    jobs: int = 2


def mutate(options: Options) -> int:
    """Try mutants; print and save the score.

    Returns:
        Exit code: 0, or 1 if a score is too low or a correct kernel was rejected.

    Raises:
        ValueError: unknown operator, family or mutant, or an unreadable file of an earlier run.
        GoldenError: the golden data cannot be used.
        MutationError: a mutant could not be tried.
    """
    names = _read(options.mutants)["names"] if options.mutants else None
    other = _read(options.against) if options.against else None
    found = cache.golden(options.golden, say)
    reader = found if isinstance(found, Reader) else found()
    start = time.perf_counter()

    def choose(mutants: Sequence[Mutant]) -> list[Mutant]:
        if names is not None:
            return named(mutants, names)
        return draw(mutants, options.seed, options.per_class or len(mutants))

    with Bar("mutants") as bar:
        selection = Selection(reader, options.pattern, options.family)
        score = Runner(selection, bar.advance, options.jobs).run(choose)
    row = {
        **summary(score),
        "opset": reader.manifest["opset"],
        "seed": None if names is not None or not options.per_class else options.seed,
        "seconds": round(time.perf_counter() - start, 1),
    }
    if options.output:
        write_file(options.output, [json.dumps(row, indent=1).encode(), b"\n"])
    if options.page:
        write_page(options.page, row, other)
    _print(row, other)
    if not options.per_class and selection.is_all:
        for line in unused_proofs(score.results):
            print(f"unused proof of equivalence: {line}")
    return 0 if passes(row) else 1


def passes(row: dict[str, Any]) -> bool:
    """Return whether every class, the total and the correct kernels pass."""
    shares = [counts["score"] for counts in row["classes"].values() if counts["score"] is not None]
    enough = all(share >= OF_A_CLASS for share in shares) and (row["score"] or 0) >= IN_TOTAL
    return bool(enough and not row["false_alarms"])


def _read(file: Path) -> dict[str, Any]:
    try:
        row: dict[str, Any] = json.loads(file.read_text())
        if not all(isinstance(row[key], kind) for key, kind in (("names", list), ("classes", dict))):
            raise KeyError("names")
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}") from None
    except (KeyError, TypeError, json.JSONDecodeError):
        raise ValueError(f"{file}: not the output of a run; write one with --output") from None
    return row


def _print(row: dict[str, Any], other: dict[str, Any] | None) -> None:
    mutations = [_cells(name, counts) for name, counts in row["mutations"].items()]
    print(aligned([["mutation", *_FIELDS, "score"], *mutations], figures=True))
    for each in row["survivors"]:
        print(f"survived: {each['kind']}: {each['name']}: {each['message']}")
    for line in row["untried"]:
        print(f"not tried: {line} (Python kernels do not support complex tensors)")
    for line in row["false_alarms"]:
        print(f"false alarm: {line}")
    before = {name: percent(counts["score"]) for name, counts in other["classes"].items()} if other else {}
    head = ["class", *_FIELDS, "score", *(["before"] if other else [])]
    lines = [
        [*_cells(name, counts), *([before.get(name, "-")] if other else [])]
        for name, counts in row["classes"].items()
    ]
    total = [*_cells("all", row), *([percent(other["score"])] if other else [])]
    print(aligned([head, *lines, total], figures=True))


def _cells(name: str, counts: dict[str, Any]) -> list[str]:
    return [name, *(str(counts[field]) for field in _FIELDS), percent(counts["score"])]
