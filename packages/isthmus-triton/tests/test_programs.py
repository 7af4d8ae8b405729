"""Random kernels in Triton's interpreter and compiled: equal to the bit."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from tests.helpers import triton_programs  # noqa: E402
from tests.helpers.children import output  # noqa: E402
from tools.repository import ROOT  # noqa: E402

PROGRAMS = 1000


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory, request):
    """The interpreter's results by number of the program; it replaces the language of a whole process."""
    seeds = sorted(
        {each.callspec.params["seed"] for each in request.session.items if each.path == request.path}
    )
    path = tmp_path_factory.mktemp("interpreted") / "results.pt"
    found = {}
    for first in range(0, len(seeds), 20):  # a child has minutes, on a busy machine too
        code = f"""
            import sys
            sys.path.insert(0, {str(ROOT)!r})
            import torch
            from tests.helpers import triton_programs
            seeds = {seeds[first : first + 20]}
            torch.save({{seed: triton_programs.results(seed) for seed in seeds}}, {str(path)!r})
        """
        output(code, TRITON_INTERPRET="1")
        found |= torch.load(path)
    return found


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_a_random_kernel_computes_what_the_interpreter_does(seed, interpreted):
    found = triton_programs.results(seed)
    assert torch.equal(found, interpreted[seed]), triton_programs.source(seed)[0]
