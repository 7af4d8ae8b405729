"""Run Triton's own tests of its language on tensors of the CPU: ``python -m tools.triton_tests MIRRORS``.

MIRRORS holds a clone of github.com/triton-lang/triton, or of a fork with its history. Of a function with many cases a
sample runs. Results are appended to a file as they arrive, so that an interrupted run can be resumed;
docs/results/triton-tests.md is generated from it. Failures do not change the exit status.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools import mirrors
from tools.ascend.vendor import runner
from tools.repository import ROOT
from tools.triton_tests.page import page

PAGE = ROOT / "docs/results/triton-tests.md"
SOURCES = ROOT / "build/triton-tests"
REVISION = "6559dea9d"  # the last one of Triton's main branch that its version 3.7 holds
FOLDER = "python/test"
LANGUAGE = (
    "annotations block_pointer compile_errors compile_only conversions core decorator frontend libdevice line_info "
    "matmul module mxfp pipeliner random reproducer standard subprocess tensor_descriptor tuple warp_specialization"
).split()
FILES = (*(f"{FOLDER}/unit/language/test_{name}.py" for name in LANGUAGE), f"{FOLDER}/unit/test_debug.py")
SUITE = runner.Suite(
    sources=SOURCES,
    folder=lambda file: SOURCES / FOLDER,
    packages=lambda file: [],
    results=ROOT / "build/triton-tests.jsonl",
    settings={"TRITON_CACHE_DIR": str(ROOT / "build/triton-tests-cache")},
    command=(
        *(sys.executable, "-m", "pytest", "-p", "tools.triton_tests.cases", "--device", "cpu"),
        *("--confcutdir", str(SOURCES)),
    ),
)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.triton_tests", description=__doc__)
    add = parser.add_argument
    add("mirrors", type=Path, nargs="?", help="folder of clones: triton-lang/triton, or a fork")
    add("parts", nargs="*", default=FILES, help="files, such as python/test/unit/language/test_core.py")
    runner.add_options(parser, test_seconds=300, file_seconds=7200)
    return parser.parse_intermixed_args()


def _main(asked: argparse.Namespace) -> None:
    if asked.mirrors is None and not asked.report:
        raise FileNotFoundError("set MIRRORS to a folder of clones: make triton-tests MIRRORS=path")
    if not asked.report:
        place = mirrors.holding(asked.mirrors, "triton-lang/triton", REVISION)
        mirrors.extract_once(place, REVISION, SOURCES, (".py",), FOLDER)
    rows = runner.run(SUITE, asked)
    PAGE.write_text(page(rows, list(FILES), REVISION))
    print(f"written: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    try:
        _main(_options())
    except FileNotFoundError as error:
        sys.exit(f"triton-tests: {error}")
