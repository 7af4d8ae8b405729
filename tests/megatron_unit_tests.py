"""Runs unit tests of a checkout of Megatron-LM in one rank: ``megatron_unit_tests.py CHECKOUT PATH...``.

``isthmus run --megatron --nproc 2`` starts it. Rank 0 prints the number of tests by outcome, and each distinct error
with the number of tests that it failed. Nothing is downloaded.
"""

from __future__ import annotations

import collections
import os
import sys
from types import ModuleType

import pytest

DOWNLOAD = "tests.test_utils.python_scripts.download_unit_tests_dataset"


class Outcomes:
    """A plugin of pytest that counts."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.errors: collections.Counter[str] = collections.Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.counts[report.outcome] += 1
            if report.failed:
                lines = [line[2:] for line in str(report.longrepr).splitlines() if line.startswith("E ")]
                self.errors[(lines or ["?"])[0].strip()[:140]] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.counts["not collected"] += 1
            self.errors[str(report.longrepr).strip().splitlines()[-1][:140]] += 1


def main(checkout: str, paths: list[str]) -> None:
    os.chdir(checkout)
    sys.path[0] = checkout
    nothing: dict[str, object] = {"download_and_extract_asset": lambda assets_dir: None}
    sys.modules[DOWNLOAD] = ModuleType(DOWNLOAD)
    vars(sys.modules[DOWNLOAD]).update(nothing)
    outcomes = Outcomes()
    options = ["-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "--timeout=60", "-W", "ignore"]
    pytest.main([*options, *paths], plugins=[outcomes])
    if os.environ.get("RANK", "0") == "0":
        total = sum(outcomes.counts.values())
        print(f"outcomes: {outcomes.counts['passed']} of {total} passed, {dict(outcomes.counts)}", flush=True)
        for error, count in outcomes.errors.most_common():
            print(f"outcomes: {count:4d} x {error}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
