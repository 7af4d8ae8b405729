"""DTensor, tensor and sequence parallelism on chip."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parallel.rank import checks
from tests.parallel.ranks import Ranks

NAMES = list(checks("tensor"))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return Ranks("tensor", 4, tmp_path_factory.mktemp("tensor"))


@pytest.mark.parametrize("name", NAMES)
def test_ranks(ranks: Ranks, name: str) -> None:
    ranks.assert_passed(name)


def test_random_numbers_of_philox(tmp_path: Path) -> None:
    """With its offsets, shards draw from one sequence, as PyTorch has it."""
    Ranks("tensor", 2, tmp_path, "random_numbers", ISTHMUS_HOST_RNG="philox").assert_passed("random_numbers")
