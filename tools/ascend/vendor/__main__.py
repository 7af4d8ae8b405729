"""Run the vendor's own tests over the reference runtime: ``python -m tools.ascend.vendor MIRRORS``.

MIRRORS holds clones of github.com/Ascend/pytorch and Ascend/op-plugin. Results are appended to a file as they arrive,
so that an interrupted run can be resumed; docs/results/ascend-tests.md is generated from it. Failures do not change
the exit status.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

from tools import mirrors
from tools.ascend.vendor import runner
from tools.ascend.vendor.page import page

ROOT = runner.ROOT
PAGE = ROOT / "docs/results/ascend-tests.md"
SOURCES = ROOT / "build/ascend-tests"
# Disabled by the vendor.
DISABLED = SOURCES / "pytorch/test/unsupported_test_cases/.pytorch-disabled-tests.json"
# Installed for the tests only, and the vendor's wheel.
PACKAGES = (ROOT / "build/test-packages", ROOT / "build/torch_npu")
SUITE = runner.Suite(
    sources=SOURCES,
    folder=lambda file: (SOURCES / file).parent,
    packages=lambda file: [*PACKAGES, SOURCES / file.partition("/")[0] / "test"],
    # The tests of torch.distributed ask for four devices, the others for two.
    devices=lambda file: 4 if "distributed" in Path(file).parts else 2,
    results=ROOT / "build/ascend-tests.jsonl",
    settings={"DISABLED_TESTS_FILE": str(DISABLED), "ISTHMUS_ASCEND_MEMORY": "16GiB"},
)
# Revisions for torch_npu 2.13.0, whose own commit is not public: the last public ones for PyTorch 2.13.
REVISIONS = {"pytorch": "94c0533b", "op-plugin": "5045ad2a3a"}
PARTS = (
    "pytorch/test/npu", "pytorch/test/nn", "pytorch/test/custom_ops", "pytorch/test/allocator",
    "pytorch/test/autograd", "pytorch/test/optim", "pytorch/test/utils", "pytorch/test/trans_contiguous",
    "op-plugin/test/test_custom_ops", "op-plugin/test/test_base_ops", "pytorch/test/distributed",
)  # fmt: skip


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.ascend.vendor", description=__doc__)
    add = parser.add_argument
    add("mirrors", type=Path, nargs="?", help="folder of clones: Ascend/pytorch and Ascend/op-plugin")
    add("parts", nargs="*", default=PARTS, help=f"files or folders (default: {' '.join(PARTS)})")
    add("--together", type=int, default=1, help="run so many files of a folder in one process (default: 1)")
    runner.add_options(parser, test_seconds=60, file_seconds=600)
    return parser.parse_intermixed_args()  # options may stand between the files


def _suite(asked: argparse.Namespace) -> runner.Suite:
    """Return the suite with the groups of files that share a process, which saves most imports of torch_npu."""
    if asked.together == 1:
        return SUITE
    files = SUITE.files(asked.parts)
    groups = {file: f"{Path(file).parent} ({i // asked.together})" for i, file in enumerate(files)}
    return dataclasses.replace(SUITE, group=groups.__getitem__, again=True)


def _checked_out(places: Path) -> None:
    """Write the tests of both repositories below build/, once for a revision."""
    for name, revision in REVISIONS.items():
        place = mirrors.repository(places, f"Ascend/{name}")
        mirrors.extract_once(place, revision, SOURCES / name, (".py", ".json", ".txt", ".ini"), "test")


def _main(asked: argparse.Namespace) -> None:
    if asked.mirrors is None and not asked.report:
        raise FileNotFoundError("set MIRRORS to a folder of clones: make ascend-tests MIRRORS=path")
    if not asked.report:
        _checked_out(asked.mirrors)
    rows = runner.run(_suite(asked), asked)
    PAGE.write_text(page(rows, list(SUITE.files(PARTS)), REVISIONS))
    print(f"written: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    try:
        _main(_options())
    except FileNotFoundError as error:
        sys.exit(f"ascend-tests: {error}")
