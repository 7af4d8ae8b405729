"""Collectives and data-parallel training over HCCL on several ranks, against gloo; see ranks.py."""

import json

import pytest

from tests.runtime.test_torch_npu import needs_torch_npu, run
from tools.repository import ASCEND


@needs_torch_npu
@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.full)])
def test_ranks_equal_gloo(size: int) -> None:
    environment = {"OMP_NUM_THREADS": "1", "ISTHMUS_ASCEND_DEVICES": str(size)}
    said = run("--nproc", str(size), str(ASCEND / "tests/runtime/ranks.py"), **environment)
    reports = [json.loads(line) for line in said.splitlines()]
    assert len(reports) == size
    for report in reports:
        for group in {2, size}:
            for backend, least in (("hccl", 490), ("gloo", 630)):
                errors, ran = report[f"{backend} of {group}"]
                assert errors == {}
                assert ran >= least
        for training in ("ddp", "fsdp"):
            # HCCL adds in the order of the ranks; gloo, for more than two, in another.
            assert report[training]["alone"] == 0
            assert report[training]["gloo"] <= (0 if size == 2 else 1e-6)
