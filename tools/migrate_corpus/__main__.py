"""Run public CUDA training scripts through analyse, convert and verify: ``python -m tools.migrate_corpus MIRRORS``.

MIRRORS is a folder of git repositories, ``MIRRORS/pytorch+examples/repo`` or ``MIRRORS/pytorch/examples``; scripts.py
lists the scripts. Results are appended to a file as they arrive, so that an interrupted run can be resumed;
docs/results/migrate-corpus.md is generated from it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from isthmus_migrate.analyse.engine import analyse
from isthmus_migrate.source.findings import LEFT, Severity
from isthmus_migrate.verify.session import Session, Task, Verdict
from tools import mirrors
from tools.migrate_corpus import page
from tools.migrate_corpus.scripts import SCRIPTS, Script

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "results" / "migrate-corpus.md"
RESULTS = HERE.parents[1] / "build" / "migrate-corpus.jsonl"
# Packages needed by the scripts only (torchvision, six) are installed here, outside the environment.
PACKAGES = HERE.parents[1] / "build" / "migrate-corpus"
ADAPTERS = HERE / "site"
SOURCES = (".py", ".json", ".yaml", ".yml", ".toml", ".cfg", ".sh")
Row = dict[str, Any]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.migrate_corpus", description=__doc__)
    add = parser.add_argument
    add("mirrors", type=Path, nargs="?", help="a folder of git repositories")
    add(
        "--only",
        nargs="+",
        default=[],
        metavar="WORD",
        help="run only scripts whose name contains one of these",
    )
    add(
        "--packages",
        type=Path,
        default=PACKAGES,
        help="folder to install torchvision in (default: %(default)s)",
    )
    add("--results", type=Path, default=RESULTS, help="results file (default: %(default)s)")
    add("--anew", action="store_true", help="also run scripts that have a result")
    add("--report", action="store_true", help="run nothing; write the page from earlier results")
    add("--timeout", type=float, default=300, help="time limit of one run of a script, in seconds")
    return parser.parse_args()


def name(script: Script) -> str:
    """Return the unique name of a script with its arguments."""
    ranks = f" ({script.ranks} ranks)" if script.ranks > 1 else ""
    model = " (Transformer)" if "--model Transformer" in script.arguments else ""
    return f"{script.repository}/{script.file}{model}{ranks}"


def extract(folder: Path, script: Script, to: Path) -> None:
    """Extract the files that a script needs from its repository, at its revision, into a folder.

    Raises:
        FileNotFoundError: the repository does not exist.
    """
    repository = mirrors.repository(folder, script.repository)
    mirrors.extract(repository, script.revision, to, SOURCES, *script.parts)
    if script.prepare:
        script.prepare((to / script.file).parent)


def examine(mirrors: Path, script: Script, timeout: float) -> Row:
    """Analyse, convert and verify one script; return its row of the page."""
    row: Row = {"name": name(script), **script._asdict()}
    row.pop("prepare")
    with tempfile.TemporaryDirectory(prefix="migrate-corpus-", ignore_cleanup_errors=True) as temporary:
        root, copies = Path(temporary).resolve() / "program", Path(temporary).resolve() / "copies"
        root.mkdir()
        extract(mirrors, script, root)
        found = analyse(root / script.file, probe=False).findings
        row["findings"] = dict(
            Counter(each.severity.value for each in found if each.severity is not Severity.NONE)
        )
        row["parses"] = not any(each.code == "IM001" for each in found)
        row["conversion"] = conversion(root / script.file)
        if not script.needs:
            row["verdicts"] = verdicts(script, root, copies, timeout)
    return row


def conversion(path: Path) -> Row:
    """Return the number of changes that convert makes in the script, and whether the result compiles."""
    from isthmus_migrate.convert.engine import convert_source

    result = convert_source(path.read_text(), path.name)
    if result.changes:
        compile(result.text, str(path), "exec", dont_inherit=True)
    again = convert_source(result.text, path.name)
    return {
        "changes": len(result.changes),
        "left": [f"{each.line}: {each.message}" for each in result.findings if each.severity in LEFT],
        "idempotent": again.text == result.text,
    }


def verdicts(script: Script, root: Path, copies: Path, timeout: float) -> Row:
    """Compare the converted script with the original on each device."""
    place = root / script.file
    task = Task(place, script.arguments.split(), root, script.steps, ranks=script.ranks, timeout=timeout)
    without = task._replace(arguments=[each for each in task.arguments if each != "--cuda"])
    with contextlib.chdir(place.parent):
        return {
            "chip": as_row(Session(task, copies / "chip").verify()),
            "cpu": as_row(Session(without, copies / "cpu").verify("cpu")),
        }


def as_row(verdict: Verdict) -> Row:
    """Return a verdict as stored in the results file."""
    losses = next((each for each in verdict.comparisons if each.subject == "losses"), None)
    records = verdict.original.records
    return {
        "same": verdict.same,
        "problem": verdict.problem,
        "repeats": verdict.repeats,
        "steps": sum(record.steps for record in records),
        "losses": losses.compared if losses else 0,
        "loss_difference": losses.difference if losses else None,
        "differing": [f"{each.subject}: {each.detail}" for each in verdict.comparisons if not each.same],
        "left": verdict.conversion.left if verdict.conversion else [],
        "residuals": [f"{path}:{line}: {subject}" for path, line, subject in verdict.residuals],
        "errors": verdict.other.errors if verdict.other and verdict.problem else verdict.original.errors,
        "seconds": round(verdict.original.seconds + (verdict.other.seconds if verdict.other else 0)),
    }


def earlier_results(results: Path) -> dict[str, Row]:
    """Read the results of earlier runs; the last one of each script counts."""
    lines = results.read_text().splitlines() if results.is_file() else []
    return {row["name"]: row for row in map(json.loads, lines)}


def show(row: Row) -> None:
    print(f"{row['name']}: {page.outcome(row)}", flush=True)


def add_packages(packages: Path) -> None:
    """Let the scripts import the adapters, and the packages of a folder."""
    paths = [str(ADAPTERS), str(packages.resolve()), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def append(results: Path, row: object) -> None:
    """Append a row to a results file, which is created if it is absent."""
    results.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    with os.fdopen(os.open(results, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o640), "a") as log:
        log.write(json.dumps(row) + "\n")


def main(asked: argparse.Namespace) -> None:
    rows = earlier_results(asked.results)
    if not asked.report:
        if asked.mirrors is None:
            sys.exit("migrate_corpus: missing argument: a folder of git repositories, or --report")
        add_packages(asked.packages)
        for script in SCRIPTS:
            named = not asked.only or any(word in name(script) for word in asked.only)
            if not named or (name(script) in rows and not asked.anew):
                continue
            row = rows[name(script)] = examine(asked.mirrors.resolve(), script, asked.timeout)
            append(asked.results, row)
            show(row)
    PAGE.write_text(page.page([rows[name(script)] for script in SCRIPTS if name(script) in rows]))
    print(f"written: {PAGE}")


if __name__ == "__main__":
    try:
        main(options())
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        sys.exit(f"migrate_corpus: {error}")
