"""Start the ranks of a subject and collect the results of the checks.

``python -m tests.helpers.parallel.ranks SUBJECT SIZE`` prints the differences from one process.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.children import finish, start_module
from tests.helpers.parallel.rank import checks


class Ranks:
    """Ranks that have run the checks of a subject.

    Attributes:
        outputs: what each rank printed.
        reports: for each rank, the line of each check that ran, by its name.
    """

    def __init__(self, subject: str, size: int, folder: Path, *names: str, **environment: str) -> None:
        devices = dict.fromkeys(("ISTHMUS_HOST_DEVICES", "ISTHMUS_ASCEND_DEVICES"), str(size))
        settings = {**devices, "ISTHMUS_HOST_MEMORY": "1GiB", **environment}
        store = Path(tempfile.mkdtemp(dir=folder)) / "store"  # not of a previous job
        processes = [
            start_module(
                "tests.helpers.parallel.rank",
                *(subject, str(number), str(size), str(folder), str(store), *names),
                merged=True,
                **settings,
            )
            for number in range(size)
        ]
        self.outputs = [printed for printed, _ in finish(processes, 240)]
        self.reports = [_reports(output) for output in self.outputs]

    def assert_passed(self, check: str) -> None:
        """Assert that every rank ran the check within its tolerance."""
        errors = [report.get(check, {}).get("error") for report in self.reports]
        missing = [number for number, report in enumerate(self.reports) if check not in report]
        found = [f"rank {number}: {error}" for number, error in enumerate(errors) if error]
        assert not found, "\n".join(found)
        assert not missing, f"ranks {missing} did not run it:\n{self.outputs[missing[0]][-3000:]}"


def checks_of(module: Mapping[str, Any], size: int, sampled: int | None = None) -> tuple[Any, Any]:
    """Make a test of each check of a module, and a fixture ``ranks`` that runs the checks that are tested, once.

    Args:
        module: the members of the test module.
        size: number of ranks.
        sampled: number of checks tested without ``--full``; None for all.
    """
    subject = Path(module["__file__"]).stem.removeprefix("test_")

    @pytest.fixture(scope="module")
    def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ranks:
        items = [item for item in request.session.items if getattr(item, "function", None) is test_ranks]
        names = [item.callspec.params["name"] for item in items]  # type: ignore[attr-defined]
        return Ranks(subject, size, tmp_path_factory.mktemp(subject), *names)

    @pytest.mark.sampled(sampled or len(checks(module)))
    @pytest.mark.parametrize("name", list(checks(module)))
    def test_ranks(ranks: Ranks, name: str) -> None:
        ranks.assert_passed(name)

    return ranks, test_ranks


def _reports(output: str) -> dict[str, dict]:
    lines = (json.loads(line) for line in output.splitlines() if line.startswith('{"check"'))
    return {line["check"]: line for line in lines}


def main() -> None:
    subject, size, *names = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        ranks = Ranks(subject, int(size), Path(folder), *names)
    for output in ranks.outputs:
        print("".join(f"{line}\n" for line in output.splitlines() if not line.startswith('{"check"')), end="")
    for number, report in enumerate(ranks.reports):
        for check, line in report.items():
            print(number, check, line["difference"], line["error"] or "")


if __name__ == "__main__":
    main()
