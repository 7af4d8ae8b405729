"""Judge all of op_db on the chip and write docs/results/opinfo.md: ``python -m tools.opinfo``.

Exits with 1 if anything fails that xfail.toml does not list, or anything passes that it lists. ``--forward`` judges
another driver, whose kernels round otherwise: its results are numbers on a page. ``--layouts`` judges the entries on
sparse and nested tensors, for docs/results/opinfo-layouts.md.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pickle
import sys
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

os.environ.setdefault("ISTHMUS_HOST_DEVICES", "2")

import torch

import isthmus._C as core

from . import compiled_judge, table
from .data import expected_failure, expected_failures
from .pool import Job, Pool, operators
from .runner import JUDGED_DTYPES, dtypes_of, short_name
from .verdict import Verdict

PAGE = Path(__file__).parents[2] / "docs" / "results" / "opinfo.md"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.opinfo", description=__doc__)
    add = parser.add_argument
    add("operators", nargs="*", help="full names, with wildcards (default: all, and the page is written)")
    add("--dtypes", default=",".join(map(short_name, JUDGED_DTYPES)), help="default: %(default)s")
    add("--cap", type=int, default=0, help="samples per operator and dtype, evenly spaced (default 0: all)")
    add("--every", type=int, default=1, help="judge one in so many pairs of operator and dtype")
    add(
        "--page", type=Path, default=PAGE, help="file of the page (default: of all operators on PyTorch 2.13)"
    )
    add("--reference", action="store_true", help="OpInfo's reference inputs in place of its samples")
    add(
        "--forward",
        action="store_true",
        help="judge forward results alone, within a tolerance: for drivers whose kernels are not the CPU's",
    )
    add("--layouts", action="store_true", help="entries on sparse and nested tensors, in place of dense ones")
    add(
        "--compiled",
        choices=tuple(compiled_judge.WAYS),
        nargs="?",
        const="compiled",
        default="",
        help="judge results of torch.compile against eager ones on the same chip (ISTHMUS_DRIVER): of the graph "
        "backend, bit for bit; of the graph backend, fused, or of Triton's kernels, within a tolerance",
    )
    add("--resume", type=Path, help="file of finished verdicts, which are not judged again")
    add("--workers", type=int, default=2, help="processes (default %(default)s)")
    add("--threads", type=int, default=1, help="intra-op threads per process (default %(default)s)")
    add("--minutes", type=float, default=0, help="begin no operator after these (default 0: judge all)")
    add("--seconds", type=float, default=300, help="time limit of one operator with one dtype")
    return parser.parse_args()


def jobs_of(known: list[Any], asked: argparse.Namespace) -> list[Job]:
    """Return (position, dtype) of each selected operator and dtype."""
    wanted = [getattr(torch, name) for name in asked.dtypes.split(",")]
    jobs = [
        (position, dtype)
        for position, op in enumerate(known)
        if not asked.operators or any(fnmatchcase(op.full_name, pattern) for pattern in asked.operators)
        for dtype in dtypes_of(op, wanted)
    ]
    return jobs[:: asked.every]


def stale(verdicts: list[Verdict]) -> list[str]:
    """Return the entries of xfail.toml that covered no failure."""
    used = {
        expected_failure(verdict.op, verdict.dtype, part) for verdict in verdicts for part in verdict.failures
    }
    return [f"{entry.op}: {entry.reason}" for entry in expected_failures() if entry not in used]


def finished_verdicts(path: Path | None) -> Iterator[Verdict]:
    """Yield the verdicts of an interrupted run."""
    if path is None or not path.exists():
        return
    with path.open("rb") as file, contextlib.suppress(EOFError):
        while True:
            yield pickle.load(file)


def keep(verdict: Verdict, path: Path | None) -> None:
    """Append a verdict to the file of finished ones."""
    if path is not None:
        with path.open("ab") as file:
            pickle.dump(verdict, file)


def show(verdict: Verdict, done: int, total: int) -> None:
    """Print one line per failure, and the progress."""
    for part, message in table.unexpected_failures(verdict).items():
        print(f"FAIL {verdict.op} {verdict.dtype} {part}: {message}", flush=True)
    if done % 100 == 0 or done == total:
        print(f"opinfo: {done} of {total}", flush=True)


def settings_of(asked: argparse.Namespace, known: list[Any], missing: int) -> str:
    """Describe the coverage of the run in a sentence."""
    samples = f"at most {asked.cap} samples, spread evenly" if asked.cap else "all samples"
    without = [op.full_name for op in known if not dtypes_of(op)]
    return (
        f"\nOf torch {torch.__version__}: {asked.dtypes.replace(',', ', ')} where the CPU has them, {samples}."
        f" op_db has {len(known)} entries; no dtype on CPU have: {', '.join(without) or 'none'}."
        + (f" The run ended before {missing} operators and dtypes were judged." if missing else "")
    )


def main() -> int:
    asked = options()
    if asked.compiled == "triton":
        os.environ["ISTHMUS_COMPILE_CODEGEN"] = "triton"
    known = operators(asked.layouts)
    jobs = jobs_of(known, asked)
    start = time.monotonic()
    verdicts = list(finished_verdicts(asked.resume))
    done = {(verdict.op, verdict.dtype) for verdict in verdicts}
    waiting = [job for job in jobs if (known[job[0]].full_name, short_name(job[1])) not in done]
    pool = Pool([op.full_name for op in known], asked)
    for verdict in pool.run(waiting):
        verdicts.append(verdict)
        keep(verdict, asked.resume)
        show(verdict, len(verdicts), len(jobs))
    missing = len(jobs) - len(verdicts)
    settings = settings_of(asked, known, missing)
    failed = [v for v in verdicts if table.unexpected_failures(v)]
    other = asked.forward or asked.compiled or asked.layouts
    sampled = asked.operators or asked.every > 1
    unused = stale(verdicts) if not (sampled or other or missing) else []
    if sampled:
        pass
    elif asked.compiled:
        text = compiled_judge.page(verdicts, settings, asked.compiled)
        table.write(compiled_judge.place(PAGE.parent, asked.compiled), text)
    elif asked.layouts:
        table.write(PAGE.with_stem("opinfo-layouts"), table.layouts_page(verdicts, torch.__version__))
    else:
        driver = core.driver()["name"]
        place = PAGE.with_stem(f"opinfo-{driver}") if asked.forward else asked.page
        make_page = table.forward_page if asked.forward else table.page
        table.write(place, make_page(verdicts, settings))
    count = table.forward_counts if asked.forward else table.counts
    for line in (compiled_judge.counts if asked.compiled else count)(verdicts):
        print(line)
    for line in unused:
        print(f"opinfo: passes, though xfail.toml expects a failure: {line}")
    print(
        f"opinfo: {len(verdicts)} judged in {time.monotonic() - start:.0f} s, {len(failed)} failed unexpectedly"
    )
    return 1 if not other and (failed or unused) else 0


if __name__ == "__main__":
    sys.exit(main())
