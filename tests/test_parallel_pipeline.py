"""torch.distributed.pipelining on chip."""

from __future__ import annotations

import pytest

from tests.parallel.rank import checks
from tests.parallel.ranks import Ranks

NAMES = list(checks("pipeline"))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return Ranks("pipeline", 4, tmp_path_factory.mktemp("pipeline"))


@pytest.mark.parametrize("name", NAMES)
def test_ranks(ranks: Ranks, name: str) -> None:
    ranks.assert_passed(name)
