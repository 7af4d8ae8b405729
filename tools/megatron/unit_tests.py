"""Run Megatron-LM's own unit tests on host devices: ``python -m tools.megatron.unit_tests CHECKOUT``.

Every file runs on 1, 2 and 4 ranks. Results are appended to a file as they arrive, so that an interrupted run can be
resumed; docs/results/megatron-unit-tests.md is generated from it. ``--again CHECKOUT FILES...`` runs files after a
change and adds a section to the page, which the next whole run removes. Failures do not change the exit status: most
tests need eight GPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from tools.megatron import unit_page as page
from tools.megatron.checkout import RUN, SETTINGS
from tools.suites import Row, counts, earlier_results

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "results" / "megatron-unit-tests.md"
RESULTS = HERE.parents[1] / "build" / "megatron-unit-tests.jsonl"
# Packages needed by the tests only are installed here, outside the environment.
PACKAGES = HERE.parents[1] / "build" / "megatron-tests"
PARTS = (
    "test_parallel_state.py",
    "tensor_parallel",
    "pipeline_parallel",
    "distributed",
    "optimizer",
    "dist_checkpointing",
    "transformer",
)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.megatron.unit_tests", description=__doc__)
    add = parser.add_argument
    add("checkout", type=Path, nargs="?", help="a checkout of Megatron-LM")
    add("files", nargs="*", help="files or folders under tests/unit_tests (default: those of the page)")
    add("--ranks", type=int, nargs="+", default=[1, 2, 4], help="default: 1 2 4")
    add("--results", type=Path, help=f"results file (default: {RESULTS}; with --again one beside it)")
    add("--anew", action="store_true", help="delete earlier results first")
    add("--report", action="store_true", help="run nothing; write the page from earlier results")
    add(
        "--again",
        action="store_true",
        help="put the files' results into a section of the page, which remains",
    )
    add("--test-seconds", type=float, default=60, help="time limit of one test")
    add("--file-seconds", type=float, default=600, help="time limit of one file")
    return parser.parse_args()


def test_files(checkout: Path, parts: list[str]) -> list[str]:
    """Return the paths of test files, relative to the checkout.

    Raises:
        FileNotFoundError: a file or folder does not exist.
    """
    found = []
    for part in parts:
        path = checkout / page.ROOT / part
        if not path.exists():
            raise FileNotFoundError(
                f"{path}: no such file or folder; give names under {page.ROOT} of the checkout"
            )
        paths = sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
        found += [str(each.relative_to(checkout)) for each in paths]
    return found


def environment(ranks: int, temporary: str) -> dict[str, str]:
    """Return the environment of the tests; their shared folders belong to one run and are deleted with it."""
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    paths = [str(PACKAGES), str(HERE.parents[1]), *given]
    changes = {"ISTHMUS_HOST_DEVICES": str(ranks), "PYTHONPATH": os.pathsep.join(paths)}
    return {**os.environ, **SETTINGS, **changes, "PYTEST_DEBUG_TEMPROOT": temporary}


def run(asked: argparse.Namespace, ranks: int, files: list[str]) -> Iterator[Row]:
    """Yield results of files on a number of ranks; stop early if the process that runs them dies."""
    temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    read, write = os.pipe()
    limits = [str(asked.test_seconds), str(asked.file_seconds)]
    runner = str(HERE / "unit_ranks.py")
    process = subprocess.Popen(
        [*RUN, runner, str(asked.checkout), str(ranks), f"/dev/fd/{write}", *limits],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[write],
        env=environment(ranks, temporary.name),
        text=True,
    )
    os.close(write)
    assert process.stdin is not None
    try:
        process.stdin.write("".join(f"{file}\n" for file in files))
        process.stdin.close()
        with os.fdopen(read) as results:
            yield from map(json.loads, results)
    finally:
        process.kill()
        process.wait()
        temporary.cleanup()


def run_all(asked: argparse.Namespace, ranks: int, files: list[str]) -> Iterator[Row]:
    """Yield results of all files. A file that kills the process is recorded; the rest continue in a new process."""
    while files:
        for row in run(asked, ranks, files):
            files = [file for file in files if file != row["file"]]
            yield row
        if files:
            lost, *files = files
            tests = {lost: ("crashed", "the process that runs the files died")}
            yield {"ranks": ranks, "file": lost, "seconds": 0, "tests": tests}


def version(checkout: Path) -> str:
    """Return Megatron's version, with the commit if the checkout is a git repository."""
    text = (checkout / "megatron" / "core" / "package_info.py").read_text()
    numbers = [re.search(rf"^{each} = (\d+)", text, re.MULTILINE) for each in ("MAJOR", "MINOR", "PATCH")]
    name = ".".join(found[1] for found in numbers if found)
    commit = subprocess.run(
        ["git", "-C", str(checkout), "log", "-1", "--format=%h", "--", "megatron"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return f"{name} ({commit})" if commit else name


def show(row: Row) -> None:
    found = ", ".join(f"{number} {outcome}" for outcome, number in counts([row]).items())
    name = row["file"].removeprefix(page.ROOT)
    print(f"{row['ranks']} ranks {row['seconds']:4d} s  {name}: {found or 'no tests'}", flush=True)


def main(asked: argparse.Namespace) -> None:
    if asked.checkout is None or not (asked.checkout / page.ROOT).is_dir():
        sys.exit(
            "make megatron-tests: set MEGATRON to a checkout of Megatron-LM: make megatron-tests MEGATRON=path"
        )
    if asked.again and not asked.files:
        sys.exit("make megatron-tests: --again needs the names of files or folders")
    asked.checkout = asked.checkout.resolve()
    asked.results = asked.results or (RESULTS.with_stem(f"{RESULTS.stem}-again") if asked.again else RESULTS)
    files = test_files(asked.checkout, asked.files or list(PARTS))
    asked.results.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    if asked.anew:
        asked.results.unlink(missing_ok=True)
    rows = earlier_results(asked.results)
    done = {(row["ranks"], row["file"]) for row in rows}
    if rows:
        print(f"reusing {len(done)} results of {asked.results}; --anew deletes them", flush=True)
    with os.fdopen(os.open(asked.results, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o640), "a") as log:
        os.fchmod(log.fileno(), 0o640)
        for ranks in [] if asked.report else asked.ranks:
            for row in run_all(asked, ranks, [file for file in files if (ranks, file) not in done]):
                log.write(json.dumps(row) + "\n")
                log.flush()
                rows.append(row)
                show(row)
    chosen = [row for ranks in asked.ranks for file in files for row in rows
              if (row["ranks"], row["file"]) == (ranks, file)]  # fmt: skip
    print("\n".join(page.totals(chosen)))
    if asked.again or not asked.files:
        limits = f"Limits: {asked.test_seconds:.0f} s per test, {asked.file_seconds:.0f} s per file."
        about = chosen, files, asked.ranks, version(asked.checkout), limits
        day = datetime.now(UTC).date()
        PAGE.write_text(page.again(PAGE.read_text(), day, *about) if asked.again else page.page(*about))
        print(f"written: {PAGE.relative_to(Path.cwd())}")


if __name__ == "__main__":
    try:
        main(options())
    except FileNotFoundError as error:
        sys.exit(f"megatron_unit_tests: {error}")
