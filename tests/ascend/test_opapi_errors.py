"""Arguments that are refused, with a message that names function, argument and value; never a crash."""

import ctypes
from typing import Any

import pytest
import torch

from tests.ascend import opapi


def refused(name: str, *arguments: Any) -> str:
    """Return the message of a call that phase one refuses."""
    opapi.start()
    with opapi.objects() as made:
        status, _ = opapi.prepare(made, opapi.ROWS[name], arguments)
    assert status == 161002
    return opapi.message()


def test_shapes_that_do_not_broadcast() -> None:
    message = refused("Add", torch.zeros(3, 4), torch.zeros(5), 1, torch.zeros(3, 4))
    assert "aclnnAdd" in message and "4" in message and "5" in message


def test_an_output_of_another_shape_is_named() -> None:
    message = refused("Add", torch.zeros(3, 4), torch.zeros(4), 1, torch.zeros(3, 5))
    assert "aclnnAdd" in message and "out has shape [3, 5], expected [3, 4]" in message


def test_dtypes_that_do_not_cast() -> None:
    message = refused("Add", torch.zeros(3), torch.zeros(3), 1, torch.zeros(3, dtype=torch.int64))
    assert "aclnnAdd" in message and "Long" in message


def test_a_dimension_out_of_range() -> None:
    message = refused("Softmax", torch.zeros(3, 4), 2, torch.zeros(3, 4))
    assert "aclnnSoftmax" in message and "got 2" in message


def test_a_mode_out_of_range() -> None:
    message = refused("DivMod", torch.zeros(3), torch.zeros(3), 3, torch.zeros(3))
    assert "mode is 3, expected 0 to 2" in message


def test_a_refused_call_is_refused_again_and_leaves_no_mark() -> None:
    for _ in range(2):
        refused("Mm", torch.zeros(3, 4), torch.zeros(3, 4), torch.zeros(3, 4), 0)
    out = torch.zeros(3, 2)
    opapi.call("Mm", torch.ones(3, 4), torch.ones(4, 2), out, 0)
    assert (out == 4).all()


def test_failures_of_phase_two_are_returned_once_by_the_next_wait() -> None:
    indices, out = torch.tensor([7]), torch.zeros(1)
    expected = (
        "^507015: .*aclrtSynchronizeDevice: aclnnIndex: index 7 is out of bounds for dimension 0 with size 3$"
    )
    with pytest.raises(ValueError, match=expected):
        opapi.call("Index", torch.zeros(3), [indices], out)
    indices[0] = 2
    opapi.call("Index", torch.arange(3.0), [indices], out)
    assert out.item() == 2


def test_the_check_leaves_values_alone() -> None:
    x = torch.full((3,), 2.0)
    opapi.start()
    with opapi.objects() as made:
        status, executor = opapi.prepare(made, opapi.ROWS["InplaceAdds"], [x, 1.0, 1.0])
        assert status == 0 and (x == 2).all()
        made.library.aclDestroyAclOpExecutor(executor)


@pytest.mark.parametrize("name", opapi.ROWS)
def test_null_arguments_are_no_crash(name: str) -> None:
    opapi.start()
    row = opapi.ROWS[name]
    with opapi.objects() as made:
        status, executor = opapi.prepare(made, row, [opapi.ABSENT.get(kind) for kind, _ in row.parameters])
        assert status in (0, 161002)
        if status == 0:
            made.library.aclDestroyAclOpExecutor(executor)


def test_null_results_and_unknown_dtypes() -> None:
    library = opapi.library()
    assert library.aclnnAbsGetWorkspaceSize(None, None, None, None) == 161001
    assert library.aclnnAbs(None, ctypes.c_uint64(0), None, None) == 161001
    create = library.aclCreateTensor
    create.restype = ctypes.c_void_p
    one = (ctypes.c_int64 * 1)(1)
    count = ctypes.c_uint64(1)
    assert create(one, count, 29, one, ctypes.c_int64(0), 2, one, count, None) is None
