"""Run the vendor's own tests over the reference runtime: ``python -m tools.ascend.vendor MIRRORS``.

MIRRORS holds clones of github.com/Ascend/pytorch and Ascend/op-plugin. Each file runs in a process of its own; after
a test that ends or blocks the process, the rest of the file runs in another. Results are appended to a file as they
arrive, so that an interrupted run can be resumed; docs/results/ascend-tests.md is generated from it. Failures do not
change the exit status.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tools import mirrors
from tools.ascend.vendor.page import page
from tools.suites import Row, counts, kept

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/results/ascend-tests.md"
SOURCES, RESULTS = ROOT / "build/ascend-tests", ROOT / "build/ascend-tests.jsonl"
DISABLED = SOURCES / "pytorch/test/unsupported_test_cases/.pytorch-disabled-tests.json"  # by the vendor
CONFIG = SOURCES / "pytest.ini"  # empty: the project's own is not meant for these tests
# Installed for the tests only, and the vendor's wheel.
PACKAGES = (ROOT / "build/ascend-test-packages", ROOT / "build/torch_npu")
# Of torch_npu 2.13.0, whose own commit is not public: the last public ones for PyTorch 2.13.
REVISIONS = {"pytorch": "94c0533b", "op-plugin": "5045ad2a3a"}
PARTS = (
    "pytorch/test/npu", "pytorch/test/nn", "pytorch/test/custom_ops", "pytorch/test/allocator",
    "pytorch/test/autograd", "pytorch/test/optim", "pytorch/test/utils", "pytorch/test/trans_contiguous",
    "op-plugin/test/test_custom_ops", "op-plugin/test/test_base_ops", "pytorch/test/distributed",
)  # fmt: skip
COMMAND = [sys.executable, "-m", "isthmus", "ascend", "run", "-m", "pytest"]
OPTIONS = (
    "-q --no-header --tb=short -p no:cacheprovider -p no:timeout -p no:xdist -p tools.ascend.vendor.record"
)
RESTARTS = 20  # of one file


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.ascend.vendor", description=__doc__)
    add = parser.add_argument
    add("mirrors", type=Path, nargs="?", help="folder of clones: Ascend/pytorch and Ascend/op-plugin")
    add("parts", nargs="*", default=PARTS, help=f"files or folders (default: {' '.join(PARTS)})")
    add("--every", type=int, default=1, help="run one file in so many (default: all)")
    add("--anew", action="store_true", help="delete earlier results first")
    add("--report", action="store_true", help="run nothing; write the page from earlier results")
    add("--test-seconds", type=float, default=60, help="time limit of one test (default: 60)")
    add("--file-seconds", type=float, default=600, help="time limit of one file (default: 600)")
    return parser.parse_args()


def _checked_out(places: Path) -> None:
    """Write the tests of both repositories below build/, once for a revision."""
    for name, revision in REVISIONS.items():
        stamp = SOURCES / name / f".{revision}"
        if not stamp.exists():
            print(f"writing the tests of Ascend/{name} at {revision} into {SOURCES / name}", flush=True)
            place = mirrors.repository(places, f"Ascend/{name}")
            mirrors.extract(place, revision, SOURCES / name, (".py", ".json", ".txt"), "test")
            stamp.touch()
    CONFIG.write_text("[pytest]\n")


def _files(parts: list[str]) -> Iterator[str]:
    for part in parts:
        path = SOURCES / part
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such file or folder; name tests as {PARTS[0]}")
        paths = sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
        yield from (str(each.relative_to(SOURCES)) for each in paths)


def _settings(file: str, record: Path) -> dict[str, str]:
    paths = [*map(str, PACKAGES), str(ROOT), str(SOURCES / file.partition("/")[0] / "test")]
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    changes = {"ISTHMUS_ASCEND_DEVICES": "2", "OMP_NUM_THREADS": "1", "DISABLED_TESTS_FILE": str(DISABLED)}
    changes |= {"ISTHMUS_RECORD": str(record), "PYTHONPATH": os.pathsep.join([*paths, *given])}
    return {**os.environ, **changes}


def _once(asked: argparse.Namespace, file: str, record: Path, end: float) -> str:
    """Run what is left of a file; return how the process ended: "", "timed out", "crashed" or "not run"."""
    command = [*COMMAND, *OPTIONS.split(), "-c", str(CONFIG)]
    process = subprocess.Popen(
        [*command, (SOURCES / file).name],
        cwd=(SOURCES / file).parent,
        env=_settings(file, record),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    cause = "crashed"
    try:
        while process.poll() is None:
            time.sleep(0.2)
            if time.time() > end:
                cause = "not run"
                break
            if time.time() - record.stat().st_mtime > asked.test_seconds:
                cause = "timed out"
                break
    finally:  # with the processes that its tests have started
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return "" if '["end"' in record.read_text() else cause


def _run(asked: argparse.Namespace, file: str) -> Row:
    """Return the results of a file."""
    start = time.time()
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record"
        record.touch()
        causes: dict[str, str] = {}
        for _ in range(RESTARTS):
            before = record.read_text()
            os.utime(record)
            cause = _once(asked, file, record, start + asked.file_seconds)
            messages = list(map(json.loads, record.read_text().splitlines()))
            tests = _outcomes(messages, causes, cause)
            if not cause or cause == "not run" or record.read_text() == before:
                break
    if not tests and cause:
        tests = {file: [cause, "before its first test"]}
    return {"ranks": 1, "file": file, "seconds": round(time.time() - start), "tests": tests}


def _outcomes(messages: list[list[str]], causes: dict[str, str], cause: str) -> dict[str, list[str]]:
    """Return outcome and reason of each test; a test without an outcome has the cause for which its process ended."""
    tests: dict[str, list[str]] = {}
    for outcome, name, reason in messages:
        if outcome not in ("begun", "end") and tests.get(name, ["passed"])[0] in ("passed", "skipped"):
            tests[name] = [outcome, reason]
    for outcome, name, _ in messages:
        if outcome == "begun" and name not in tests:
            causes.setdefault(name, cause or "crashed")
            tests[name] = [causes[name], causes[name]]
    return tests


def _main(asked: argparse.Namespace) -> None:
    if asked.mirrors is None and not asked.report:
        raise FileNotFoundError("set MIRRORS to a folder of clones: make ascend-tests MIRRORS=path")
    if not asked.report:
        _checked_out(asked.mirrors)
    files = list(_files(list(asked.parts)))[:: asked.every]
    RESULTS.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    if asked.anew:
        RESULTS.unlink(missing_ok=True)
    rows = {row["file"]: row for row in kept(RESULTS)}
    if rows:
        print(f"reusing {len(rows)} results of {RESULTS}; --anew deletes them", flush=True)
    left = [] if asked.report else [file for file in files if file not in rows]
    with os.fdopen(os.open(RESULTS, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o640), "a") as log:
        os.fchmod(log.fileno(), 0o640)
        for i, file in enumerate(left):
            row = rows[file] = _run(asked, file)
            log.write(json.dumps(row) + "\n")
            log.flush()
            found = ", ".join(f"{number} {outcome}" for outcome, number in counts([row]).items())
            print(f"{i + 1}/{len(left)} {row['seconds']:4d} s  {file}: {found or 'no tests'}", flush=True)
    PAGE.write_text(page(list(rows.values()), list(_files(list(PARTS))), REVISIONS))
    print(f"written: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    try:
        _main(_options())
    except FileNotFoundError as error:
        sys.exit(f"ascend-tests: {error}")
