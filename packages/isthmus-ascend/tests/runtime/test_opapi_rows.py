"""Every row against ATen called from Python with the same inputs: strided, transposed, offset; unusual scalars."""

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch

from isthmus_ascend.generate.table import Row
from tests.runtime import opapi
from tests.runtime.cases import OUT, arguments
from tests.runtime.meaning import Meaning, copied
from tests.runtime.runtime import acl

# Functions that meaning.py does not evaluate, beside families: tested by name in other files.
FUNCTIONS = (
    "generator rms_norm rms_norm_grad swiglu swiglu_grad dropout_mask dropout_apply dropout bce_with_logits_grad "
    "kl_div_grad l1_loss_grad fused_adamw fused_sgd scatter_mode one_hot_values rotary rotary_grad foreach_sum "
    "foreach_difference scaled_quotient scaled_product fill_once prelu_grad renormed"
).split()
ADAPTED = {
    name
    for name, row in opapi.ROWS.items()
    if "(...)" in row.program or any(f"{f}(" in row.program for f in FUNCTIONS)
}


def test_every_other_row_is_tested_by_name() -> None:
    text = "".join(path.read_text() for path in Path(__file__).parent.glob("*.py"))
    assert [name for name in sorted(ADAPTED) if f'"{name}"' not in text] == []


def beside(value: Any) -> Any:
    """Return memory for an output like this: every second element of a larger one, filled with another value."""
    if isinstance(value, (list, tuple)):
        return [beside(element) for element in value]
    shape = [*value.shape[:-1], 2 * value.shape[-1]] if value.dim() else [2]
    memory = torch.full(shape, 1, dtype=value.dtype)
    return memory[..., ::2] if value.dim() else memory[1]


@pytest.mark.parametrize(
    "row", [row for name, row in opapi.ROWS.items() if name not in ADAPTED], ids=lambda row: row.name
)
def test_row(row: Row) -> None:
    torch.manual_seed(1)
    given = arguments(row)
    meaning = Meaning(row, copied(given))
    assert meaning.results
    names = [name for _, name in row.parameters]
    for i, value in enumerate(given):
        if value is OUT:
            given[i] = beside(meaning.results[names[i]]) if names[i] in meaning.results else None
    resized = [name for name in meaning.results if f"resize({name}," in row.program]
    shapes = opapi.call(row.name, *given, shapes=resized)
    for name, expected in meaning.results.items():
        actual = given[names.index(name)]
        if name in shapes:
            assert shapes[name] == list(expected.shape)
            actual = torch.as_strided(
                actual, expected.shape, torch.empty(expected.shape).stride(), actual.storage_offset()
            )
        for one, other in zip(
            *(x if isinstance(x, (list, tuple)) else [x] for x in (actual, expected)), strict=True
        ):
            if other.numel():  # an output that the operator leaves out has no element
                torch.testing.assert_close(
                    one, other.reshape(one.shape).to(one.dtype), rtol=0, atol=0, equal_nan=True
                )


def test_each_execution_of_a_captured_call_has_a_shape_of_its_own() -> None:
    given, places = torch.tensor([0, 5, 0, 0]), torch.zeros(4, 1, dtype=torch.int64)
    opapi.start()
    stream = acl.result_of("aclrtCreateStream")
    with opapi.objects() as made:
        status, executor = opapi.prepare(made, opapi.ROWS["Nonzero"], [given, places])
        assert status == 0
        out = made.values[1]
        acl.aclmdlRICaptureBegin(stream, 0)
        assert made.library.aclnnNonzero(None, ctypes.c_uint64(0), executor, ctypes.c_void_p(stream)) == 0
        model = acl.told("aclmdlRICaptureEnd", stream, kind=ctypes.c_void_p)
        for values in ([0, 5, 0, 0], [6, 0, 7, 8], [0, 0, 9, 0]):
            given.copy_(torch.tensor(values))
            acl.aclmdlRIExecuteAsync(model, stream)
            acl.aclrtSynchronizeStream(stream)
            count = 4 - values.count(0)
            assert opapi.view_shape(made, out) == [count, 1]
            assert torch.equal(places[:count], given.nonzero())
    acl.aclmdlRIExecuteAsync(model, stream)  # the tensor is destroyed
    acl.aclmdlRIDestroy(model)
    acl.aclrtDestroyStream(stream)


def test_a_repeatable_executor_runs_again_at_other_addresses() -> None:
    opapi.start()
    stream = ctypes.c_void_p(acl.result_of("aclrtCreateStream"))
    tensors = [torch.full((3,), float(i)) for i in range(6)]
    with opapi.objects() as made:
        status, executor = opapi.prepare(made, opapi.ROWS["Mul"], tensors[1:4])
        assert status == 0
        handles, library = made.values, made.library

        def launched() -> int:
            return library.aclnnMul(None, ctypes.c_uint64(0), executor, stream)

        def moved(index: int, handle: Any, tensor: torch.Tensor | None) -> int:
            address = None if tensor is None else tensor.data_ptr()
            return library.aclSetTensorAddr(
                executor, ctypes.c_size_t(index), handle, ctypes.c_void_p(address)
            )

        assert moved(0, handles[0], tensors[4]) == 161002, "it runs once"
        assert library.aclSetAclOpExecutorRepeatable(executor) == 0
        assert launched() == 0
        assert moved(0, handles[0], tensors[4]) == moved(2, handles[2], tensors[5]) == 0
        assert launched() == launched() == 0
        acl.aclrtSynchronizeStream(stream.value)
        assert tensors[3].tolist() == [2, 2, 2]
        assert tensors[5].tolist() == [8, 8, 8]
        for index, handle, tensor in (
            (3, handles[2], tensors[5]),
            (1, handles[0], tensors[5]),
            (1, handles[1], None),
        ):
            assert moved(index, handle, tensor) == 161002
        assert library.aclDestroyAclOpExecutor(executor) == 0
        assert library.aclDestroyAclOpExecutor(executor) == launched() == 161002
        assert library.aclSetAclOpExecutorRepeatable(executor) == 161002
    acl.aclrtDestroyStream(stream.value)
