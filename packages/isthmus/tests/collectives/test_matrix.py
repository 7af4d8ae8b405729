"""Every operation of torch.distributed x dtype x ReduceOp x number of ranks on the chip, against the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collectives.test_collectives import Ranks
from tests.helpers.outside_driver import build

# Optional driver functions; the core replaces them by messages.
WITHOUT_OPTIONAL = "table.gather = 0; table.scatter = 0; table.all_to_all = 0; table.all_to_all_v = 0;"


def check(size: int, folder: Path, **environment: str) -> None:
    ranks = Ranks(folder, ("matrix",), size, **environment)
    for rank in range(size):
        ranks.assert_passed("matrix", rank)


@pytest.mark.parametrize("size", [4, *(pytest.param(size, marks=pytest.mark.full) for size in (1, 2, 8))])
def test_matrix(tmp_path: Path, size: int) -> None:
    check(size, tmp_path)


@pytest.mark.full
def test_matrix_without_optional_functions(tmp_path: Path) -> None:
    check(3, tmp_path, ISTHMUS_DRIVER=build(tmp_path, WITHOUT_OPTIONAL))
