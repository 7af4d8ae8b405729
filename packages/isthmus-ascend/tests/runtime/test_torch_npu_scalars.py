"""Scalars whose type is not the tensor's: torch_npu on the reference runtime against the CPU."""

import pytest

from tests.runtime.test_torch_npu import needs_torch_npu, run
from tools.repository import ASCEND

JOBS = str(ASCEND / "tests/runtime/scalar_jobs.py")


@needs_torch_npu
@pytest.mark.parametrize("every", [17, pytest.param(1, marks=pytest.mark.full)])
def test_operators_with_scalars_give_what_the_cpu_gives(every: int) -> None:
    # Cards refuse some of these dtypes.
    lines = run(JOBS, str(every), ISTHMUS_ASCEND_STRICT="0").splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("115 operators")
