"""Triton kernels on NPUs."""

import pytest

from tests.runtime.test_torch_npu import needs_torch_npu, run
from tools.repository import ASCEND


@needs_torch_npu
def test_kernels_run_on_streams_of_npus():
    pytest.importorskip("isthmus_triton")
    assert "equal" in run(str(ASCEND / "tests/runtime/triton_jobs.py"))
