"""Collectives over HCCL by the driver of Ascend NPUs: the host chip's matrix, and ranks that die or stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isthmus_ascend.environment import variables
from tests.collectives import test_faults, test_matrix


def driver(ranks: int) -> dict[str, Any]:
    """Return the variables of the driver on the reference runtime, with an NPU for each rank."""
    return {**variables(), "ISTHMUS_DRIVER": "ascend", "ISTHMUS_ASCEND_DEVICES": str(ranks)}


@pytest.mark.full
@pytest.mark.parametrize("size", [2, 4])
def test_matrix_of_the_host_chip(tmp_path: Path, size: int) -> None:
    test_matrix.check(size, tmp_path, **driver(size))


def test_a_killed_rank_ends_the_others_with_the_vendors_error() -> None:
    told = test_faults.run("killed", **driver(3))
    assert told[1] == {}
    for found in (told[0], told[2]):
        assert found["error"].startswith("DistBackendError"), found
        assert "all_reduce #3 of torch.float32 [" in found["error"], found  # it, or the last of several
        assert "failed with 21 (a rank of the communicator is lost)" in found["error"], found
        assert found["again"] == found["error"]


@pytest.mark.full
def test_a_stopped_rank_ends_the_others_within_the_timeout() -> None:
    told = test_faults.run("stopped", **driver(3))
    for found in (told[0], told[2]):
        assert found["error"].startswith("DistBackendError"), found
        assert "timed out after 3 s waiting for ranks [1]" in found["error"], found
