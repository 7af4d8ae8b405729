"""Launches with checks: planted faults are named with their line, correct kernels raise nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.children import output_fresh
from tools.repository import ROOT

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

from isthmus_triton.debug import KernelFault  # noqa: E402
from isthmus_triton.debug.fresh import mark_fresh_memory  # noqa: E402
from tests.helpers.triton_faults import CASES, bounds, order, values  # noqa: E402, F401

DEVICES = ("cpu", pytest.param("chip", marks=pytest.mark.host))
# Faults that only a comparison with another result shows.
INVISIBLE = {name for name, case in CASES.items() if not case.kinds}


@pytest.fixture
def fresh_memory():
    undo = mark_fresh_memory()
    yield
    undo()


def test_at_least_55_of_60_faults_are_to_be_named():
    assert len(CASES) >= 60 and len(INVISIBLE) / len(CASES) < 5 / 60


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", CASES)
def test_a_planted_fault_is_named_with_its_line(name, fresh_memory):
    case = CASES[name]
    case.launch(False)
    if name in INVISIBLE:
        case.launch(True)
        return
    with pytest.raises(KernelFault) as error:
        case.launch(True)
    first = error.value.faults[0]
    assert first.line in case.lines and first.kind in case.kinds, str(error.value)


@triton.jit
def add_kernel(x, y, out, n, MASK: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n if MASK else at < n + BLOCK
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=at < n), mask=at < n)


@pytest.mark.parametrize("device", DEVICES)
def test_the_report_says_where_and_how_far(device):
    x, y, out = (torch.ones(100, device=device) for _ in range(3))
    add_kernel[(4,)](x, y, out, 100, True, 32, debug=True)
    assert torch.equal(out, x + y)
    with pytest.raises(KernelFault) as error:
        add_kernel[(4,)](x, y, out, 100, False, 32, debug=True)
    (fault,) = error.value.faults
    assert (fault.argument, fault.program, fault.count) == ("x", (3, 0, 0), 28)
    lines = str(error.value).splitlines()
    assert lines[0] == ("add_kernel: load out of bounds: x[100], 1 elements past the end of x (100, float32)")
    assert lines[1].startswith(f"  {Path(__file__)}:") and "tl.store(out + at, tl.load(x + at" in lines[1]
    assert lines[-1].startswith("order of programs: ISTHMUS_TRITON_SEED=")


@triton.jit
def table_kernel(pointers, out, BLOCK: tl.constexpr):
    source = tl.load(pointers + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * BLOCK + at, tl.load(source + at))


@pytest.mark.parametrize("device", DEVICES)
def test_a_table_may_point_to_any_live_tensor(device):
    tensors = [torch.full((1 << 20,), float(each), device=device) for each in range(3)]
    pointers = torch.tensor([each.data_ptr() for each in tensors], device=device)
    out = torch.empty(3, 64, device=device)
    table_kernel[(3,)](pointers, out, 64, debug=True)
    assert out[:, 5].tolist() == [0, 1, 2]
    del tensors[1]
    with pytest.raises(
        KernelFault, match=r"load out of bounds: address 0x[0-9a-f]+ is in no tensor that is alive"
    ):
        table_kernel[(3,)](pointers, out, 64, debug=True)


@triton.jit
def chain_kernel(x, turn, BLOCK: tl.constexpr):
    program, at = tl.program_id(0), tl.arange(0, BLOCK)
    while tl.atomic_add(turn, 0, sem="acquire") != program:
        pass
    tl.store(x + at, tl.load(x + at) * 2 + program)
    tl.debug_barrier()
    tl.atomic_xchg(turn, program + 1, sem="release")


def test_programs_that_wait_for_each_other_run_in_turns():
    """2000 programs, each of which waits for the one before, in a shuffled order."""
    x, turn = torch.zeros(16, dtype=torch.int64), torch.zeros(1, dtype=torch.int32)
    chain_kernel[(2000,)](x, turn, 16, debug=True)
    expected = 0
    for program in range(2000):
        expected = (expected * 2 + program + 2**63) % 2**64 - 2**63
    assert turn.item() == 2000 and x.tolist() == [expected] * 16


@triton.jit
def same_kernel(out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), 7)


def test_programs_may_store_the_same_value():
    out = torch.zeros(16)
    same_kernel[(9,)](out, 16, debug=True)
    assert out.tolist() == [7.0] * 16


@triton.jit
def assertion_kernel(x, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    tl.device_assert(value > 0, "positive")


def test_a_failed_assertion_is_an_error_instead_of_an_abort():
    assertion_kernel[(1,)](torch.ones(16), 16, debug=True)
    with pytest.raises(
        KernelFault, match=r"device assertion failed: positive\n.*tl.device_assert\(value > 0"
    ):
        assertion_kernel[(1,)](torch.arange(16), 16, debug=True)


CHILD = f"""
    import sys
    sys.path.insert(0, {str(ROOT)!r})
    import torch, triton
    from isthmus_triton.debug import KernelFault
    from tests.helpers.triton_faults.values import column_sum_kernel
    x = torch.randn(2000, 30)
    column_sum_kernel[(2000,)](x, torch.zeros(30), 30, 32)
    try:
        column_sum_kernel[(2000,)](x, torch.empty(30), 30, 32)
    except KernelFault as error:
        print(error.faults[0].kind, error.faults[0].program)
"""


def test_the_environment_checks_all_launches_and_the_seed_sets_their_order():
    first, again, other = (
        output_fresh(CHILD, ISTHMUS_TRITON_DEBUG="1", ISTHMUS_TRITON_SEED=seed).strip() for seed in "334"
    )
    assert first == again != other and first.startswith("uninitialised (")
