"""ONNX models on the chip: right, or refused by name."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from isthmus.infer.model import InferError, Model
from tools.repository import ROOT

onnx = pytest.importorskip("onnx")
onnx_model = pytest.importorskip("isthmus.infer.onnx_model")
onnx_values = pytest.importorskip("isthmus.infer.onnx_values")

CHIP = torch.device("chip:0")
GUIDE = ROOT / "docs" / "guides" / "infer.md"
# Reshapes by what Shape says of the input; a causal mask of its size; a constant in the middle of a graph.
SHAPES = """
<ir_version: 9, opset_import: ["" : 18]>
shapes (float[batch, n] x) => (float[rows, two] y, float[n, n] mask)
<int64[1] two = {2}, int64[1] rest = {-1}, int64[1] first = {0}, int64 zero = {0}, int64 one = {1}>
{
    shape = Shape(x)
    batch = Gather <axis = 0> (shape, first)
    rows = Mul(batch, two)
    wanted = Concat <axis = 0> (rows, rest)
    y = Reshape(x, wanted)
    n = Gather(shape, one)
    row = Unsqueeze(n, first)
    square = Concat <axis = 0> (row, row)
    ones = ConstantOfShape <value = float[1] {1}> (square)
    mask = Trilu <upper = 0> (ones)
}
"""


def load(text: str, folder: Path, device: torch.device = CHIP, check: bool = True) -> Model:
    model = onnx.parser.parse_model(text)
    if check:
        onnx.checker.check_model(model)
    onnx.save(model, folder / "model.onnx")
    return onnx_model.load(folder / "model.onnx", device)


def test_shape_arithmetic_is_done_once_for_each_shape(tmp_path: Path) -> None:
    model = load(SHAPES, tmp_path)
    assert [each.symbols for each in model.inputs or []] == [["batch", "n"]]
    for batch, n in ((3, 4), (3, 4), (2, 6)):
        x = torch.randn(batch, n)
        y, mask = model.run([x.to(CHIP)])
        assert y.device == mask.device == CHIP
        assert torch.equal(y.cpu(), x.reshape(2 * batch, -1))
        assert torch.equal(mask.cpu(), torch.ones(n, n).tril())


def test_results_may_be_written(tmp_path: Path) -> None:
    """Also those that depend on the shape alone, and constants."""
    text = """
    <ir_version: 9, opset_import: ["" : 18]>
    results (float[2] x) => (float[2] y, float[2] zeros, float[2] c)
    <float[2] c = {5, 6}>
    { y = Add(x, c)  shape = Shape(x)  zeros = ConstantOfShape(shape) }
    """
    model, x = load(text, tmp_path), torch.ones(2, device=CHIP)
    for _ in range(2):
        results = model.run([x])
        assert [each.tolist() for each in results] == [[6, 7], [0, 0], [5, 6]]
        for each in results:
            each.add_(1)


def test_shapes_that_depend_on_values_are_computed_each_time(tmp_path: Path) -> None:
    text = """
    <ir_version: 9, opset_import: ["" : 18]>
    values (float[4] x) => (int64[m] picked, int64[one] size)
    <int64[1] rest = {-1}>
    { places = NonZero(x)  picked = Reshape(places, rest)  size = Shape(picked) }
    """
    model = load(text, tmp_path)
    for x in ([1.0, 0, 1, 0], [1.0, 1, 1, 0]):
        picked, size = model.run([torch.tensor(x, device=CHIP)])
        assert picked.tolist() == torch.tensor(x).nonzero().flatten().tolist()
        assert size.tolist() == [len(picked)]


def test_what_is_not_supported_is_named(tmp_path: Path) -> None:
    head = '<ir_version: 9, opset_import: ["" : 18]> g (float[2] x) => (float[2] y)'
    with pytest.raises(InferError, match=r"model.onnx: operators that are not supported: Hardmax; export"):
        load(head + "{ y = Hardmax(x) }", tmp_path)
    for nodes, missing in (
        ("y = Add(x, z)", "Add y: no value 'z' before it"),
        ("z = Relu(x)", "no value 'y', which is"),
        ("y = Relu(x) y = Neg(x)", "Neg y: a value 'y' exists before it"),
        ("x = Relu(x) y = Neg(x)", "Relu x: a value 'x' exists before it"),
    ):
        onnx.save(onnx.parser.parse_model(head + "{" + nodes + "}"), tmp_path / "model.onnx")
        with pytest.raises(InferError, match=f"model.onnx: {missing}"):
            onnx_model.load(tmp_path / "model.onnx", CHIP)
    model = load(head + "{ h = Softmax(x) y, m = Dropout(h) }", tmp_path)
    with pytest.raises(InferError, match="Dropout: not supported: m"):
        model.run([torch.ones(2, device=CHIP)])
    model = load(head.replace("[2]", "[2, 2]") + "{ y = Gather <axis = 0> (x, x) }", tmp_path)
    with pytest.raises(InferError, match="Gather: "):
        model.run([torch.ones(2, 2, device=CHIP)])
    recurrent = (
        "<float[1, 8, 1] w, float[1, 8, 2] r>" + '{ y = LSTM <hidden_size = 2, direction = "%s"> (x, w, r) }'
    )
    sizes = head.replace("[2]", "[2, 1, 1]", 1)
    nodes = recurrent.replace(">", " = {" + ", ".join(["1"] * 16) + "}>", 1) % "bidirectional"
    nodes = nodes.replace("w,", "w = {" + ", ".join(["1"] * 8) + "},", 1)
    model = load(sizes + nodes, tmp_path, check=False)
    with pytest.raises(InferError, match="LSTM: bidirectional with weights of 1 directions"):
        model.run([torch.ones(2, 1, 1, device=CHIP)])
    model = load(head + "{ y = Concat(x, x) }", tmp_path, check=False)
    with pytest.raises(InferError, match="Concat: no attribute 'axis'"):
        model.run([torch.ones(2, device=CHIP)])


def test_functions_of_the_standard_have_its_defaults(tmp_path: Path) -> None:
    head = '<ir_version: 9, opset_import: ["" : 18]> g (float[3] x) => (float[3] y)'
    x = torch.tensor([-2.0, 0.5, 3.0])
    for nodes, expected in (
        ("y = Selu(x)", torch.nn.functional.selu(x)),
        ("y = ThresholdedRelu(x)", torch.where(x > 1, x, 0)),
        ("y = Shrink <lambd = 1.0> (x)", torch.nn.functional.hardshrink(x, 1.0)),
        ('y = Relu <unknown = "a"> (x)', None),
    ):
        model = load(head + "{" + nodes + "}", tmp_path, check=expected is not None)
        if expected is None:
            with pytest.raises(InferError, match="Relu: not supported: unknown"):
                model.run([x.to(CHIP)])
        else:
            torch.testing.assert_close(model.run([x.to(CHIP)])[0].cpu(), expected)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU])
def test_recurrent_layers(make: Any, tmp_path: Path) -> None:
    layer = make(3, 4, num_layers=2, bidirectional=True, batch_first=True)
    x = torch.randn(2, 5, 3)
    torch.onnx.export(
        layer, (x,), str(tmp_path / "model.onnx"), dynamo=False, dynamic_axes={"x": [0]}, input_names=["x"]
    )
    x = torch.randn(3, 5, 3)
    y, *last = onnx_model.load(tmp_path / "model.onnx", CHIP).run([x.to(CHIP)])
    with torch.no_grad():
        expected, states = layer(x)
    torch.testing.assert_close(y.cpu(), expected)
    for found, wanted in zip(last, states if make is nn.LSTM else [states], strict=True):
        torch.testing.assert_close(found.cpu(), wanted)


def test_malformed_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    for data in (b"", b"garbage", b"\x08"):
        file.write_bytes(data)
        with pytest.raises(InferError, match=r"model.onnx: not a valid ONNX model"):
            onnx_model.load(file, CHIP)


def test_external_data_outside_the_models_folder_is_refused(tmp_path: Path) -> None:
    weight = onnx.TensorProto(name="w", data_type=1, dims=[1], data_location=1)
    weight.external_data.add(key="location", value="../secret")
    (tmp_path / "secret").write_bytes(bytes(4))
    (tmp_path / "sub").mkdir()
    value = onnx.helper.make_tensor_value_info("y", 1, [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Neg", ["w"], ["y"])], "g", [], [value], [weight])
    (tmp_path / "sub" / "model.onnx").write_bytes(onnx.helper.make_model(graph).SerializeToString())
    with pytest.raises(InferError, match="not a valid ONNX model"):
        onnx_model.load(tmp_path / "sub" / "model.onnx", CHIP)


def convolutions() -> tuple[nn.Module, Tensor]:
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(128, 10), nn.GELU(), nn.LayerNorm(10)), torch.randn(2, 3, 8, 8)


def llama() -> tuple[nn.Module, Tensor]:
    from tests.chip.compile.test_export import Logits, tiny_llama

    return Logits(tiny_llama()), torch.arange(12).reshape(2, 6)


@pytest.mark.full
@pytest.mark.parametrize("make", [convolutions, llama])
def test_models_exported_from_the_chip(make: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    model, x = make()
    model = model.eval().to(CHIP)
    names = ("input_ids",) if make is llama else ("input",)
    program = torch.onnx.export(
        model, (x.to(CHIP),), dynamo=True, dynamic_shapes=({0: "batch"},), input_names=names
    )
    program.save(str(tmp_path / "model.onnx"))
    on_chip = onnx_model.load(tmp_path / "model.onnx", CHIP)
    on_cpu = onnx_model.load(tmp_path / "model.onnx", torch.device("cpu"))
    x = torch.cat([x, x.flip(0)])
    (result,) = on_chip.run([x.to(CHIP)])
    with torch.no_grad():
        torch.testing.assert_close(result, model(x.to(CHIP)))
    assert torch.equal(result.cpu(), on_cpu.run([x])[0])


@pytest.mark.full
def test_every_case_of_the_standard_is_right_or_refused(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = [case for case in collect_testcases(None) if case.model is not None]
    outcomes = Counter(_outcome(case, tmp_path / "case.onnx") for case in cases)
    wrong = {name for name in outcomes if name not in ("right", "refused", "other")}
    assert not wrong
    right, refused, other = (outcomes[each] for each in ("right", "refused", "other"))
    counted = f"{len(cases)} cases for operators {right} pass, {refused} are refused, and {other}"
    assert counted in " ".join(GUIDE.read_text().split())


def _outcome(case: Any, file: Path) -> str:
    """Returns right, refused, other (inputs that are not tensors), or the name of the case."""
    onnx.save(case.model, file)
    try:
        model = onnx_model.load(file, CHIP)
        for given, expected in case.data_sets:
            if not all(isinstance(each, np.ndarray | np.generic) for each in (*given, *expected)):
                return "other"
            for _ in range(2):
                results = model.run([_tensor(each).to(CHIP) for each in given])
            for found, each in zip(results, expected, strict=True):
                wanted = _tensor(each)
                half = wanted.dtype in (torch.float16, torch.bfloat16)
                tolerance = {"rtol": 2e-2, "atol": 5e-3} if half else {"rtol": 1e-3, "atol": 1e-5}
                torch.testing.assert_close(found.cpu(), wanted, **tolerance, equal_nan=True)
    except InferError:
        return "refused"
    except AssertionError:
        return str(case.name)
    return "right"


def _tensor(array: Any) -> Tensor:
    return onnx_values.tensor(onnx.numpy_helper.from_array(np.asarray(array)))
