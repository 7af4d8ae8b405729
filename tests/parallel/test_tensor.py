"""DTensor, tensor and sequence parallelism on chip."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.parallel.ranks import Ranks, checks_of

ranks, test_ranks = checks_of("tensor", 4)


def test_random_numbers_of_philox(tmp_path: Path) -> None:
    """With its offsets, shards draw from one sequence, as PyTorch has it."""
    Ranks("tensor", 2, tmp_path, "random_numbers", ISTHMUS_HOST_RNG="philox").assert_passed("random_numbers")
