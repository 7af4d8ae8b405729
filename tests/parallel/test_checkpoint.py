"""Distributed checkpoints on chip: four ranks write, two read and write, four read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.parallel.ranks import Ranks

JOBS = (
    (4, ("write_sharded", "write_tensor_parallel", "write_beside_training", "read_into_other_parallelism")),
    (2, ("read_of_four", "read_whole", "write_sharded", "write_tensor_parallel")),
    (4, ("read_of_two",)),
)
CHECKS = [(place, name) for place, (_, names) in enumerate(JOBS) for name in names]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> list[Ranks]:
    folder: Path = tmp_path_factory.mktemp("checkpoint")
    return [Ranks("checkpoint", size, folder, *names) for size, names in JOBS]


@pytest.mark.parametrize(("job", "name"), CHECKS)
def test_ranks(jobs: list[Ranks], job: int, name: str) -> None:
    jobs[job].assert_passed(name)
