"""Arguments that are refused, with a message that names function, argument and value; never a crash."""

import ctypes
from typing import Any

import pytest
import torch

from tests.runtime import opapi


def refused(name: str, *arguments: Any) -> str:
    """Return the message of a call that phase one refuses."""
    opapi.start()
    with opapi.objects() as made:
        status, _ = opapi.prepare(made, opapi.ROWS[name], arguments)
    assert status == 161002
    return opapi.message()


@pytest.mark.parametrize(
    ("name", "arguments", "texts"),
    [
        ("Add", ((3, 4), (5,), 1, (3, 4)), ("4", "5")),
        ("Add", ((3, 4), (4,), 1, (3, 5)), ("out has shape [3, 5], expected [3, 4]",)),
        ("Add", ((3,), (3,), 1, torch.zeros(3, dtype=torch.int64)), ("Long",)),
        ("Softmax", ((3, 4), 2, (3, 4)), ("got 2",)),
        ("DivMod", ((3,), (3,), 3, (3,)), ("mode is 3, expected 0 to 2",)),
    ],
    ids=["sizes", "out", "dtypes", "dimension", "mode"],
)
def test_the_message_names_what_is_wrong(name: str, arguments: Any, texts: tuple[str, ...]) -> None:
    message = refused(name, *(torch.zeros(x) if isinstance(x, tuple) else x for x in arguments))
    assert f"aclnn{name}" in message and all(text in message for text in texts)


def test_a_refused_call_is_refused_again_and_leaves_no_mark() -> None:
    for _ in range(2):
        refused("Mm", torch.zeros(3, 4), torch.zeros(3, 4), torch.zeros(3, 4), 0)
    out = torch.zeros(3, 2)
    opapi.call("Mm", torch.ones(3, 4), torch.ones(4, 2), out, 0)
    assert (out == 4).all()


def test_a_number_of_another_kind_makes_another_call() -> None:
    """A call is checked once for each signature."""
    for dtype, good, bad in ((torch.int32, 0, 0.0), (torch.bool, False, 0), (torch.float32, 1, 1j)):
        opapi.call("InplaceMuls", torch.ones(3, dtype=dtype), good)
        assert "cast" in refused("InplaceMuls", torch.ones(3, dtype=dtype), bad)


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


def test_null_arguments_are_no_crash() -> None:
    opapi.start()
    for name, row in opapi.ROWS.items():
        with opapi.objects() as made:
            status, executor = opapi.prepare(made, row, opapi.in_order(row, {}))
            assert status in (0, 161002), name
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


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("Pdist", (torch.zeros(3), 2.0, torch.zeros(3)), "self has 1 dimensions, expected 2"),
        (
            "GridSampler2D",
            (torch.zeros(1, 1, 2, 2), torch.zeros(1, 2, 2, 2), -(2**63), 0, False, torch.zeros(1, 1, 2, 2)),
            "a mode is -9223372036854775808, expected 0 to 2",
        ),
        (
            "TransformBiasRescaleQkv",
            (torch.zeros(2, 3, 0), torch.zeros(0), 4, *(torch.zeros(2, 4, 3, 0) for _ in range(3))),
            "num_heads is 4, expected a divisor of a third of the last dimension of qkv, 0",
        ),
        ("ChunkCat", ([torch.zeros(2)], 0, 2**31, torch.zeros(2)), "expected at most 65536"),
        ("MhcSinkhorn", (torch.zeros(2, 2), 0.1, 2**31 - 1, torch.zeros(2, 2)), "expected 1 to 1000"),
        (
            "BatchNormBackward",
            (torch.zeros(1, 3), torch.zeros(2, 3), *[None] * 3, *[torch.zeros(3)] * 2, True, 0.1, [True] * 3),
            "expected that of its tensor",
        ),
        (
            "BatchNormBackward",
            (torch.zeros(2, 3), torch.zeros(2, 3), *[None] * 3, *[torch.zeros(2)] * 2, True, 0.1, [True] * 3),
            "expected an element for each channel",
        ),
    ],
)
def test_shapes_that_the_kernels_take_for_granted(
    name: str, arguments: tuple[Any, ...], message: str
) -> None:
    outputs = len(opapi.ROWS[name].parameters) - len(arguments)
    assert message in refused(name, *arguments, *[torch.zeros(2, 3)] * outputs)


def test_places_of_a_pooling_outside_of_its_input() -> None:
    grad, self = torch.ones(1, 1, 2, 2), torch.ones(1, 1, 4, 4)
    indices = torch.tensor([[[[0, 1], [2, 16]]]])
    with pytest.raises(ValueError, match=r"^507015: .*indices are from 0 to 16, expected 0 to 15$"):
        opapi.call(
            "MaxPool2dWithIndicesBackward", grad, self, indices, [2, 2], [2, 2], [0, 0], [1, 1], False,
            torch.zeros(1, 1, 4, 4),
        )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("scalar", [False, True])
def test_the_least_integer_over_minus_one(dtype: torch.dtype, scalar: bool) -> None:
    """A processor raises SIGFPE."""
    least = torch.iinfo(dtype).min
    self, out = torch.tensor([least, 6], dtype=dtype), torch.zeros(2, dtype=dtype)
    other = -1 if scalar else torch.tensor([-1, -1], dtype=dtype)
    opapi.call("DivMods" if scalar else "DivMod", self, other, 1, out)
    assert out.tolist() == [least, -6]
    opapi.call("FmodScalar" if scalar else "FmodTensor", self, other, out)
    assert out.tolist() == [0, 0]
