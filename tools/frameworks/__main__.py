"""Run frameworks' examples and popular programs under ``isthmus run``: ``python -m tools.frameworks MIRRORS``.

MIRRORS is a folder of git repositories, ``MIRRORS/karpathy+makemore/repo`` or ``MIRRORS/karpathy/makemore``;
programs.py lists what runs. Packages of packages.txt are in build/frameworks/packages. Nothing is downloaded: weights
are random, data is generated. Results are appended to a file as they arrive, so that an interrupted run can be
resumed; docs/results/frameworks.md is generated from it. Failures do not change the exit status.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tools import mirrors
from tools.frameworks.page import Row, page
from tools.frameworks.programs import FRAMEWORKS, PROGRAMS, Program, name
from tools.repository import ROOT
from tools.suites import earlier_results

PAGE = ROOT / "docs/results/frameworks.md"
BUILD = ROOT / "build/frameworks"
PACKAGES = BUILD / "packages"
SITE = Path(__file__).resolve().parent / "site"
BIN = Path(sys.executable).parent
# Larger files are missing in some copies of repositories; none of them is needed.
ENDINGS = tuple(
    ".py .txt .json .jsonl .yaml .yml .toml .cfg .csv .wav .jinja .sh .model .info .gz .npz".split()
)
LOSS = re.compile(
    r"(?i)\bloss(?:[\w/]*)['\"]?\s*(?:[:=(\[]|is)?\s*['\"]?(?:tensor\()?(-?\d+\.\d+(?:e[-+]\d+)?)"
)
TESTS = re.compile(r"(\d+) (passed|failed|skipped|error|xfailed|deselected)")
SETTINGS = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "PYTHONWARNINGS": "ignore"}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.frameworks", description=__doc__)
    add = parser.add_argument
    add("mirrors", type=Path, nargs="?", help="a folder of git repositories")
    add("--only", metavar="WORD", default="", help="run only programs with this in their name")
    add("--anew", action="store_true", help="also run programs that have a result")
    add("--timeout", type=float, default=300, help="time limit of one run, in seconds (default: %(default)s)")
    add("--report", action="store_true", help="run nothing; write the page from earlier results")
    return parser.parse_args()


def extract(folder: Path, program: Program) -> Path:
    """Return the folder of a program: its files and data, written once."""
    to = BUILD / name(program).replace("/", "+").replace(": ", "+")
    stamp = to / f".{program.revision}"
    if not stamp.exists():
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        if program.repository:
            repository = mirrors.repository(folder, program.repository)
            mirrors.extract(repository, program.revision, to, ENDINGS, *program.parts)
        if program.prepare:
            program.prepare(to)
        stamp.touch()
    return to


def environment(program: Program) -> dict[str, str]:
    """Return the environment of a program: packages beside those of the virtual environment."""
    path = os.pathsep.join(filter(None, (program.settings.get("PYTHONPATH"), str(SITE), str(PACKAGES))))
    found = {**os.environ, **SETTINGS, **program.settings, "PYTHONPATH": path}
    commands = (BIN, PACKAGES / "bin", BUILD / "torchtune/bin")
    return {**found, "PATH": os.pathsep.join((*map(str, commands), os.environ["PATH"]))}


def run(program: Program, place: Path, timeout: float) -> Row:
    """Run a program under ``isthmus run``; return its outcome, losses and counts of tests."""
    begun = time.monotonic()
    with place.joinpath("output.txt").open("w+") as output:
        process = subprocess.Popen(
            [BIN / "isthmus", "run", *shlex.split(program.command)],
            cwd=place,
            env=environment(program),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
        output.seek(0)
        text = output.read()
    losses = LOSS.findall(text)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("isthmus: ")]
    return {
        "status": process.returncode,
        "seconds": round(time.monotonic() - begun),
        "losses": [losses[0], losses[-1]] if losses else [],
        "tests": {kind: int(count) for count, kind in TESTS.findall(lines[-1] if lines else "")},
        "error": "\n".join(lines[-12:]) if process.returncode else "",
    }


def compare(program: Program, root: Path, timeout: float) -> Row:
    """Compare a program with the same on the CPU; see ``isthmus migrate verify``."""
    words = shlex.split(program.command)
    ranks = [words.pop(0), words.pop(0)] if words[0] == "--nproc" else []
    module = [words.pop(0)] if words[0] == "-m" else []
    done = subprocess.run(
        [BIN / "isthmus", "migrate", "verify", "--shim", "--json", "--steps", str(program.steps)]
        + ["--folder", root, "--timeout", str(timeout), *ranks, *module, words[0], "--", *words[1:]],
        check=False,
        cwd=root / program.folder,
        env=environment(program),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    try:
        return json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        return {"problem": (done.stderr or done.stdout).strip().splitlines()[-1:], "same": False}


def examine(folder: Path, program: Program, timeout: float) -> Row:
    """Run a program and compare it with the CPU."""
    root = extract(folder, program)
    row: Row = {"name": name(program), "revision": program.revision, "command": program.command}
    if program.ends:
        row["run"] = run(program, root / program.folder, timeout)
    if program.steps is not None:
        row["verdict"] = compare(program, root, timeout)
    return row


def main(asked: argparse.Namespace) -> None:
    results = BUILD / "results.jsonl"
    rows = {row["name"]: row for row in earlier_results(results)}
    if asked.mirrors is None and not asked.report:
        raise FileNotFoundError("set MIRRORS to a folder of clones: make frameworks MIRRORS=path")
    for program in () if asked.report else (*FRAMEWORKS, *PROGRAMS):
        known = rows.get(name(program), {})
        if asked.only in name(program) and (asked.anew or known.get("command") != program.command):
            row = rows[name(program)] = examine(asked.mirrors, program, asked.timeout)
            with results.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{row['name']}: {row.get('run', {}).get('status', '')}", flush=True)
    PAGE.write_text(page(rows))
    print(f"written: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    try:
        main(options())
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        sys.exit(f"frameworks: {error}")
