"""Dtypes that PyTorch's CPU kernels refuse are refused on a chip with kernels of its own, in one line."""

from __future__ import annotations

import json

import pytest

from isthmus.opset import operators, schema_of
from isthmus.opset.refusals import refusals_of, refused_dtypes
from tests.helpers.children import output

CALLS = """
import json, torch
import torch.nn.functional as F
aten = torch.ops.aten
def tensor(*shape, dtype=torch.int64):
    return torch.ones(shape).to(dtype).to(device)
def floats(*shape):
    return tensor(*shape, dtype=torch.float)
REFUSED = {
    "softmax": lambda: F.softmax(tensor(2, 3), 1),
    "softmax of int8": lambda: F.softmax(tensor(2, 3, dtype=torch.int8), 1),
    "log_softmax": lambda: F.log_softmax(tensor(2, 3, dtype=torch.int32), 1),
    "gradient of softmax": lambda: aten._softmax_backward_data(tensor(3), tensor(3), 0, torch.int64),
    "var": lambda: tensor(4).var(),
    "std": lambda: tensor(4, 2).std(0),
    "mean": lambda: tensor(4).mean(),
    "gelu": lambda: F.gelu(tensor(4)),
    "gradient of gelu": lambda: aten.gelu_backward(tensor(4), tensor(4)),
    "silu": lambda: F.silu(tensor(4)),
    "softplus": lambda: F.softplus(tensor(4)),
    "a mean into integers": lambda: torch.mean(tensor(4, 2), 0, out=tensor(0)),
    "a mean of floats in integers": lambda: floats(4).mean(dtype=torch.int64),
    "elu": lambda: F.elu(tensor(4)),
    "in place": lambda: F.elu_(tensor(4)),
    "leaky_relu into out=": lambda: torch.ops.aten.leaky_relu.out(tensor(4), 0.1, out=tensor(4)),
    "lerp": lambda: torch.lerp(tensor(4), tensor(4), 0.5),
    "lerp of tensors": lambda: torch.lerp(tensor(4), tensor(4), tensor(4)),
    "lerp to integers": lambda: torch.lerp(tensor(4, dtype=torch.float), tensor(4), 0.5),
    "addcdiv": lambda: torch.addcdiv(tensor(4), tensor(4), tensor(4)),
    "lists": lambda: torch._foreach_lerp([tensor(4)], [tensor(4)], 0.5),
    "binary_cross_entropy": lambda: F.binary_cross_entropy(tensor(4), tensor(4)),
    "mse_loss": lambda: F.mse_loss(tensor(4), tensor(4)),
    "mse_loss without reduction": lambda: F.mse_loss(tensor(4), tensor(4), reduction="none"),
    "layer_norm": lambda: F.layer_norm(tensor(2, 3), [3]),
    "batch_norm": lambda: F.batch_norm(tensor(2, 3), None, None, training=True),
    "avg_pool2d": lambda: F.avg_pool2d(tensor(1, 1, 4, 4, dtype=torch.int32), 2),
    "interpolate": lambda: F.interpolate(tensor(1, 1, 4, 4), scale_factor=2),
    "grid_sample": lambda: F.grid_sample(tensor(1, 1, 2, 2), tensor(1, 1, 1, 2)),
    "cross_entropy of int32 classes": lambda: F.cross_entropy(floats(2, 3), tensor(2, dtype=torch.int32)),
    "nll_loss of int32 classes": lambda: F.nll_loss(tensor(2, 3, dtype=torch.float), tensor(2, dtype=torch.int32)),
    "nll_loss of integers": lambda: F.nll_loss(tensor(2, 3), tensor(2)),
    "take by int32": lambda: torch.take(tensor(4), tensor(2, dtype=torch.int32)),
    "gather by int16": lambda: torch.gather(tensor(4), 0, tensor(2, dtype=torch.int16)),
    "embedding by int8": lambda: F.embedding(tensor(2, dtype=torch.int8), tensor(2, 2, dtype=torch.float)),
    "norm": lambda: torch.linalg.vector_norm(tensor(4)),
    "cdist": lambda: torch.cdist(tensor(2, 2), tensor(2, 2)),
    "bitwise and of floats": lambda: tensor(4, dtype=torch.float) & tensor(4),
    "binary_cross_entropy of floats and integers": lambda: F.binary_cross_entropy(tensor(4), floats(4)),
    "hardswish": lambda: F.hardswish(tensor(4)),
    "hardswish in place": lambda: F.hardswish(tensor(4), inplace=True),
    "hardsigmoid into out=": lambda: aten.hardsigmoid.out(tensor(4), out=tensor(4)),
    "logsigmoid": lambda: F.logsigmoid(tensor(4)),
    "glu": lambda: F.glu(tensor(4)),
    "huber_loss": lambda: F.huber_loss(tensor(4), tensor(4)),
    "smooth_l1_loss": lambda: F.smooth_l1_loss(tensor(4), tensor(4)),
    "prelu": lambda: F.prelu(tensor(4), tensor(1)),
    "adaptive_max_pool2d": lambda: F.adaptive_max_pool2d(tensor(1, 4, 4), 2),
    "bicubic": lambda: F.interpolate(tensor(1, 1, 4, 4), scale_factor=2, mode="bicubic"),
    "multi_margin_loss by int32": lambda: F.multi_margin_loss(floats(2, 3), tensor(2, dtype=torch.int32)),
    "index_copy by int32": lambda: tensor(4).index_copy_(0, tensor(2, dtype=torch.int32), tensor(2)),
    "sums of bools": lambda: torch.addmm(*[tensor(2, 2, dtype=torch.bool)] * 3),
}
ACCEPTED = {
    "square roots": lambda: tensor(4).sqrt(),
    "half": lambda: F.gelu(tensor(4, dtype=torch.half)),
    "a dtype to compute in": lambda: F.softmax(tensor(4), 0, dtype=torch.float),
    "a mean in another dtype": lambda: tensor(4).mean(dtype=torch.float),
    "means in another dtype": lambda: tensor(4, 2).mean(0, dtype=torch.double),
    "sums": lambda: tensor(4).sum(),
    "int32 indices": lambda: F.embedding(tensor(2, dtype=torch.int32), tensor(2, 2, dtype=torch.float)),
    "index by int32": lambda: tensor(4)[tensor(2, dtype=torch.int32)],
    "index by bool": lambda: tensor(4)[tensor(4, dtype=torch.bool)],
    "mixed": lambda: F.mse_loss(tensor(4), tensor(4, dtype=torch.float)),
    "integer quotient": lambda: tensor(4) // 2,
    "bools and numbers": lambda: tensor(4, dtype=torch.bool) * 2.5,
    "lists of integers": lambda: torch._foreach_add([tensor(4)], 1),
    "pool": lambda: F.avg_pool2d(tensor(1, 1, 4, 4), 2),
}
def error(call):
    try:
        call()
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return ""
found = {}
for device in ("chip", "cpu"):
    for kind, calls in (("refused", REFUSED), ("accepted", ACCEPTED)):
        found[f"{kind} {device}"] = {name: error(call) for name, call in calls.items()}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def errors() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(output(CALLS, ISTHMUS_DRIVER="numpy").splitlines()[-1])
    return found


@pytest.mark.parametrize("device", ["cpu", "chip"])
def test_dtypes_without_a_meaning_are_refused(device: str, errors: dict[str, dict[str, str]]) -> None:
    assert not [name for name, text in errors[f"refused {device}"].items() if not text]
    assert not {name: text for name, text in errors[f"accepted {device}"].items() if text}


def test_the_error_names_operator_argument_and_dtypes(errors: dict[str, dict[str, str]]) -> None:
    chip = errors["refused chip"]
    floats = "float16 float32 float64 bfloat16"
    assert (
        chip["softmax"]
        == f"NotImplementedError: aten::_softmax: self has dtype int64; expected one of {floats}."
    )
    assert chip["mse_loss"] == (
        f"NotImplementedError: aten::mse_loss: the tensors have dtype int64; expected one of {floats}."
    )
    for name in ("layer_norm", "elu", "var", "avg_pool2d", "nll_loss of int32 classes", "lists"):
        assert "expected one of" in chip[name] and len(chip[name].splitlines()) == 1


def test_no_operator_refuses_a_specified_dtype() -> None:
    for name, operator in operators().items():
        row = refused_dtypes().get(name, {})
        assert not {*row.get("together", ())} & {*operator.dtypes}, name
        refusals = refusals_of(schema_of(name))
        assert {*refusals.arguments} <= {each.name for each in schema_of(name).inputs}
        assert {*refusals.values} <= {each.name for each in schema_of(name).inputs}
