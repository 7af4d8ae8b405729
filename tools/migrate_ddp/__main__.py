"""Train public scripts in one process and, after `convert --ddp`, in two: ``python -m tools.migrate_ddp MIRRORS``.

MIRRORS is a folder of git repositories, ``MIRRORS/pytorch+examples/repo`` or ``MIRRORS/pytorch/examples``; scripts.py
lists the scripts. The judge is `isthmus migrate verify --ddp`. Results are appended to a file as they arrive, so that
an interrupted run can be resumed; docs/results/migrate-ddp.md is generated from it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from isthmus_migrate.convert.engine import Result, convert_source
from isthmus_migrate.rules.data_parallel import DataParallel
from isthmus_migrate.verify.session import Session, Task, Verdict
from tools.migrate_corpus.__main__ import PACKAGES, add_packages, append, extract
from tools.migrate_corpus.scripts import Script
from tools.migrate_ddp import page
from tools.migrate_ddp.page import Row
from tools.migrate_ddp.scripts import SCRIPTS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "migrate-ddp.md"
RESULTS = PAGE.parents[2] / "build" / "migrate-ddp.jsonl"
RANKS = 2


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.migrate_ddp", description=__doc__)
    parser.add_argument("mirrors", type=Path, help="a folder of git repositories")
    parser.add_argument("--only", metavar="WORD", default="", help="run only scripts with this in their name")
    parser.add_argument(
        "--packages", type=Path, default=PACKAGES, help="folder with torchvision (default: %(default)s)"
    )
    parser.add_argument(
        "--timeout", type=float, default=600, help="time limit of one run of a script, in seconds"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="results file (default: %(default)s)")
    return parser.parse_args()


def examine(mirrors: Path, script: Script, timeout: float) -> Row:
    """Convert one script and, if that is possible, compare its ranks with one process."""
    with tempfile.TemporaryDirectory(prefix="migrate-ddp-", ignore_cleanup_errors=True) as temporary:
        root, copies = Path(temporary).resolve() / "program", Path(temporary).resolve() / "copies"
        root.mkdir()
        extract(mirrors, script, root)
        place = root / script.file
        result = convert_source(place.read_text(), place.name, options=[DataParallel.option])
        row = Row(script, len(result.changes), metrics(result), refusal(result))
        if row.problem:
            return row
        task = Task(
            place, script.arguments.split(), root, script.steps, ddp=True, ranks=RANKS, timeout=timeout
        )
        with contextlib.chdir(place.parent):
            return judge_row(row, Session(task, copies).verify())


def metrics(result: Result) -> Sequence[str]:
    """Return what the log says about numbers: those reduced over the ranks, and those multiplied by their number."""
    said = (each.advice for each in result.changes if each.code == DataParallel.code)
    return list(dict.fromkeys(each for each in said if "ranks" in each and ": " in each))


def refusal(result: Result) -> str:
    """Return why the training was not converted, or ""."""
    if any(each.code == DataParallel.code for each in result.changes):
        return ""
    reasons = [
        f"line {each.line}: {each.message}" for each in result.findings if each.code in ("IM001", "IM210")
    ]
    return f"not converted: {reasons[0]}" if reasons else "not converted: no training"


def judge_row(row: Row, verdict: Verdict) -> Row:
    """Return a row with the differences of the compared runs."""
    if verdict.problem:
        return row._replace(problem=verdict.problem)
    found = {each.subject: each for each in verdict.comparisons}
    return row._replace(
        steps=sum(record.steps for record in verdict.original.records),
        losses=found["losses"].difference,
        parameters=found["parameters"].difference,
        printed=found["printed text"].difference,
        noise=max(each.tolerance for each in verdict.comparisons if each.noisy) if verdict.noisy else 0.0,
        same=verdict.same,
    )


def earlier_rows(results: Path) -> dict[str, Row]:
    """Return the rows of earlier runs by the names of their scripts."""
    found = map(json.loads, results.read_text().splitlines() if results.is_file() else ())
    scripts = {page.name(script): script for script in SCRIPTS}
    return {
        row["script"]: Row(**{**row, "script": scripts[row["script"]]})
        for row in found
        if row["script"] in scripts
    }


def main(asked: argparse.Namespace) -> None:
    add_packages(asked.packages)
    os.environ["ISTHMUS_HOST_DEVICES"] = str(RANKS)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rows = earlier_rows(asked.results)
    for script in SCRIPTS:
        if asked.only in page.name(script) and page.name(script) not in rows:
            row = rows[page.name(script)] = examine(asked.mirrors.resolve(), script, asked.timeout)
            append(asked.results, {**row._asdict(), "script": page.name(script)})
            print(f"{page.name(script)}: {page.outcome(row)}", flush=True)
    PAGE.write_text(page.page([rows[page.name(script)] for script in SCRIPTS if page.name(script) in rows]))
    print(f"written: {PAGE}")


if __name__ == "__main__":
    try:
        main(options())
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        sys.exit(f"migrate_ddp: {error}")
