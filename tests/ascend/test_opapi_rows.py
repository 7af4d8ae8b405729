"""Every row against ATen called from Python with the same inputs: strided, transposed, offset; unusual scalars."""

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.ascend import opapi
from tests.ascend.cases import OUT, arguments
from tests.ascend.meaning import Meaning, copied
from tests.ascend.runtime import acl
from tools.ascend.table import Row

# What meaning.py does not evaluate, beside families: tested by name in other files.
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
    stream = acl.made("aclrtCreateStream")
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
    acl.aclmdlRIExecuteAsync(model, stream)  # of a tensor that is destroyed
    acl.aclmdlRIDestroy(model)
    acl.aclrtDestroyStream(stream)
