"""A dump has every call, with its module, line, statistics; a crash leaves it readable."""

import json
import math
import signal
from pathlib import Path

import pytest
import torch

import isthmus_diagnostics.accuracy
from isthmus_diagnostics.accuracy import dumps
from isthmus_diagnostics.accuracy.collectives import Pending
from isthmus_diagnostics.accuracy.errors import AccuracyError
from isthmus_diagnostics.accuracy.statistics import COLUMNS, compose, measure, read
from tests.accuracy import llama
from tests.helpers import children
from tools.repository import ROOT

KINDS = ("statistics", "hashes", "tensors")


@pytest.fixture(scope="module")
def tensors(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dump")
    with isthmus_diagnostics.accuracy.dump(folder, "tensors"):
        llama.train(2)
    return dumps.read(folder)[0]


def named(rank, operator, module, phase="forward", step=0):
    return [
        call for call in rank.calls if call.operator == operator and call.place[:3] == (step, phase, module)
    ]


def test_calls_have_module_line_and_phase(tensors):
    (forward,) = named(tensors, "aten::silu", "Llama.layers.1.mlp")
    (backward,) = named(tensors, "aten::silu_backward", "Llama.layers.1.mlp", "backward")
    assert forward.line == backward.line
    assert forward.line.startswith("llama.py:")
    assert (
        "return self.down(F.silu" in Path(llama.__file__).read_text().splitlines()[int(forward.line[9:]) - 1]
    )
    assert named(tensors, "module", "Llama.layers.0.attention.q")[0].arguments == {"class": "Linear"}


def test_gradients_and_states_are_recorded(tensors):
    (call,) = named(tensors, "optimizer::AdamW", "Llama.layers.0.mlp.up.weight", "optimizer", step=1)
    assert set(call.inputs) == {"parameter", "gradient", "exp_avg", "exp_avg_sq"}
    assert call.arguments["lr"] == 1e-2
    assert not torch.equal(call.inputs["parameter"].values, call.outputs["parameter"].values)


def test_results_are_arguments_of_the_next_call(tensors):
    (silu,) = named(tensors, "aten::silu", "Llama.layers.0.mlp")
    (product,) = named(tensors, "aten::mul.Tensor", "Llama.layers.0.mlp")
    assert product.inputs["self"] is silu.outputs["output 0"]
    assert torch.equal(silu.outputs["output 0"].values, torch.nn.functional.silu(silu.inputs["self"].values))


def test_statistics_are_those_of_the_values(tensors):
    for content in list(tensors.contents.values())[::7]:
        values = content.values.double()
        s = content.statistics
        assert (s.min, s.max) == (values.min(), values.max())
        assert math.isclose(s.norm, values.norm(), rel_tol=1e-6)
        assert s.zeros == (values == 0).sum()


@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_those_without_a_dump(kind, tmp_path):
    with isthmus_diagnostics.accuracy.dump(tmp_path, kind):
        losses = llama.train(2)
    assert losses == llama.train(2)


def rows_of(tensor, hashed=True):
    kernel = torch.full((2, COLUMNS), 7.0, dtype=torch.float64, device=tensor.device)
    measure(tensor, kernel, 1, hashed)
    count = tensor.numel() * (2 if tensor.is_complex() else 1)
    return read(kernel[1:], [count], hashed)[0], read(compose(tensor, hashed)[None], [count], hashed)[0]


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int8, torch.bool,
     torch.uint8, torch.complex64],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (7, 1031), (33, 4100)])
def test_kernel_agrees_with_operators(dtype, shape):
    generator = torch.Generator().manual_seed(1)
    tensor = (torch.randn(shape, generator=generator) * 3).to(dtype)
    one, other = rows_of(tensor)
    assert one.hash == other.hash
    assert one[4:7] == other[4:7]
    assert one[:4] == pytest.approx(
        other[:4], rel=1e-5, abs=1e-4 * max(1, tensor.numel()) ** 0.5, nan_ok=True
    )


@pytest.mark.parametrize("scale", [1e30, 1e-25, 1.0])
def test_kernel_keeps_the_range_of_float32(scale):
    tensor = torch.randn(5000) * scale
    tensor[17], tensor[4099], tensor[3] = math.nan, -math.inf, 0
    found, other = rows_of(tensor)
    assert found[4:] == (1, 1, 1, other.hash)
    assert found.norm == pytest.approx(tensor[tensor.isfinite()].double().norm().item(), rel=1e-5)
    assert (found.min, found.max) == (other.min, other.max)


def test_hash_tells_the_order_of_elements():
    tensor = torch.arange(64, dtype=torch.float32).reshape(8, 8)
    moved = rows_of(tensor.t())[0]
    assert moved.hash == rows_of(tensor.t().contiguous())[0].hash != rows_of(tensor)[0].hash
    assert moved[:7] == rows_of(tensor)[0][:7]


def test_scope_steps_and_level(tmp_path):
    with isthmus_diagnostics.accuracy.dump(tmp_path / "a", steps=[1], scope="*.layers.0.*"):
        llama.train(3)
    (rank,) = dumps.read(tmp_path / "a")
    assert {call.place.step for call in rank.calls} == {1}
    assert all(".layers.0." in call.place.module for call in rank.calls)
    with isthmus_diagnostics.accuracy.dump(tmp_path / "b", level="module"):
        llama.train(1)
    (rank,) = dumps.read(tmp_path / "b")
    assert {call.operator for call in rank.calls} == {"module", "optimizer::AdamW"}


COPIED = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "compressed": lambda: torch.eye(3).to_sparse_csr(),
    "mkldnn": lambda: torch.ones(3).to_mkldnn(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "meta": lambda: torch.ones(3, device="meta"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", COPIED)
def test_copies_of_every_kind_of_tensor_are_recorded(name, tmp_path):
    tensor = COPIED[name]()
    with isthmus_diagnostics.accuracy.dump(tmp_path):
        torch.empty(4)  # unwritten memory, against which copies are judged
        tensor.clone()
    operators = [call.operator for call in dumps.read(tmp_path)[0].calls]
    assert "aten::clone" in operators


def test_unknown_kind_is_refused(tmp_path):
    with pytest.raises(AccuracyError, match="--dump pictures: expected one of statistics"):
        isthmus_diagnostics.accuracy.dump(tmp_path, "pictures")


KILLED = """
import os, signal, isthmus_diagnostics.accuracy
from tests.accuracy import llama
with isthmus_diagnostics.accuracy.dump({folder!r}, {kind!r}):
    llama.train(1)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_dump_of_a_killed_job_is_readable(tmp_path):
    code = KILLED.format(folder=str(tmp_path), kind="tensors")
    killed = children.run(code, PYTHONPATH=str(ROOT))
    assert killed.returncode == -signal.SIGKILL
    index = tmp_path / "rank-0" / "index.jsonl"
    assert index.stat().st_mode & 0o777 == 0o640
    with index.open("a") as file:  # cuts the last line off
        file.write('{"call": 10000, "st')
    (rank,) = dumps.read(tmp_path)
    assert named(rank, "optimizer::AdamW", "Llama.head.weight", "optimizer")
    assert all(c.values is not None for call in rank.calls for c in call.outputs.values())
    lines = index.read_text().splitlines()
    index.write_text("\n".join([lines[0], "{", *lines[1:]]))
    with pytest.raises(AccuracyError, match=r"index\.jsonl:2: not a line of JSON"):
        dumps.read(tmp_path)


def test_a_folder_without_a_dump_is_refused(tmp_path):
    with pytest.raises(AccuracyError, match="contains no dump"):
        dumps.read(tmp_path)


def test_index_is_json_lines(tmp_path):
    with isthmus_diagnostics.accuracy.dump(tmp_path):
        torch.ones(3) + 1
    lines = [json.loads(line) for line in (tmp_path / "rank-0" / "index.jsonl").read_text().splitlines()]
    assert lines[-1]["operator"] == "aten::add.Tensor"
    assert lines[-1]["arguments"] == {"other": 1, "alpha": 1}


@pytest.mark.parametrize(
    ("start", "end", "is_used"), [(4, 8, False), (0, 2, False), (3, 5, True), (2, 4, True)]
)
def test_a_collective_is_complete_when_its_own_elements_are_used(start, end, is_used):
    flat = torch.zeros(8)
    pending = Pending()
    pending.add(7, [("tensors[0]", flat[2:4])])
    part = flat[start:end]
    assert pending.has(part) is is_used
    assert [call for call, _ in pending.take_used([part])] == [7] * is_used
    assert pending.has(flat) is not is_used
    assert [call for call, _ in pending.take_rest()] == [7] * (not is_used)
