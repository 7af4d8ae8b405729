"""The mutation command: console output, JSON file, exit status."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from isthmus._support.files import write_file
from isthmus._support.progress import Bar, say
from isthmus._support.tables import aligned
from isthmus.conformance import cache
from isthmus.conformance.golden import Reader
from tools.mutation.run import Runner, Selection
from tools.mutation.score import summary

THRESHOLD = 0.95
_FIELDS = ("mutants", "caught", "survived", "equivalent")


def mutate(
    pattern: str = "*",
    family: str = "",
    golden: Path | None = None,
    output: Path | None = None,
    jobs: int = 2,
    one_of_each: bool = False,
) -> int:
    """Try the mutants; print and save the score.

    Args:
        pattern: pattern of operator names.
        family: only this family; "" for all.
        golden: folder of golden data; None for the cache, where it is generated if absent.
        output: JSON file for ``isthmus conform report --mutation``.
        jobs: number of processes.
        one_of_each: try only one mutant of each mutation operator.

    Returns:
        Exit code: 0, or 1 if the score is below 95 % or a correct kernel was rejected.

    Raises:
        ValueError: unknown operator or family.
        GoldenError: the golden data cannot be used.
        MutationError: a mutant could not be tried.
    """
    found = cache.golden(golden, say)
    reader = found if isinstance(found, Reader) else found()
    start = time.perf_counter()
    with Bar("mutants") as bar:
        score = Runner(Selection(reader, pattern, family), bar.advance, jobs, one_of_each).run()
    row = {
        **summary(score),
        "opset": reader.manifest["opset"],
        "seconds": round(time.perf_counter() - start, 1),
    }
    if output:
        write_file(output, [json.dumps(row, indent=1).encode(), b"\n"])
    _print(row)
    return 0 if not row["false_alarms"] and (row["score"] or 0) >= THRESHOLD else 1


def _print(row: dict[str, Any]) -> None:
    for title, table in (("family", row["families"]), ("mutation", row["mutations"])):
        lines = [_cells(name, counts) for name, counts in table.items()]
        print(aligned([[title, *_FIELDS, "score"], *lines], figures=True))
    for each in row["survivors"]:
        print(f"survived: {each['operator']}: {each['mutation']} ({each['detail']}): {each['message']}")
    for line in row["unused_proofs"]:
        print(f"unused proof of equivalence: {line}")
    for line in row["untried"]:
        print(f"not tried: {line} (Python kernels do not support complex tensors)")
    for line in row["false_alarms"]:
        print(f"false alarm: {line}")
    print(aligned([["all", *_FIELDS, "score"], _cells("", row)], figures=True))


def _cells(name: str, counts: dict[str, Any]) -> list[str]:
    share = "-" if counts["score"] is None else f"{100 * counts['score']:.1f} %"
    return [name, *(str(counts[field]) for field in _FIELDS), share]
