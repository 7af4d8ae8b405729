"""Recorded calls are those that the chip makes; what it lacks is listed first by calls."""

from __future__ import annotations

import json
from pathlib import Path

from tests.helpers import children

# Of the decompositions of PyTorch the core counts the parts only. A number becomes a tensor on the chip by a fill.
COMPARE = """
    from collections import Counter
    import torch, transformers
    from isthmus import opset
    from isthmus.coverage.models import Input, Model
    from isthmus.coverage.record import record

    sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
    config = transformers.Qwen2Config(**sizes, num_key_value_heads=2)
    ids = torch.zeros(2, 16, dtype=torch.int64).to("chip")
    model = transformers.Qwen2ForCausalLM(config).to("chip")
    for train in (False, True):
        with torch.device("meta"):
            module = transformers.Qwen2ForCausalLM(config)
        found = record("qwen", Model(module, (), {"input_ids": Input((2, 16), torch.int64)}, (2, 16)), train)
        torch.chip.reset_dispatch_stats()
        with torch.set_grad_enabled(train):
            output = model.train(train)(input_ids=ids, labels=ids if train else None)
        if train:
            optimizer = torch.optim.AdamW(model.parameters())
            output.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        expected = Counter()
        for name, row in torch.chip.dispatch_stats()["operators"].items():
            expected[opset.canonical(name) or name, row["route"]] += row["calls"]
        expected = {key[0]: calls for key, calls in expected.items() if key[1] == "kernel"}
        seen = {each.name: each.calls for each in found.operators if each.route == "kernel"}
        del expected["aten::fill_.Scalar"]
        seen.pop("aten::fill_.Scalar", None)
        assert seen == expected, set(seen.items()) ^ set(expected.items())
        assert len(seen) > 15
        assert not [each for each in found.operators if each.is_lacking]
    print("same")
"""


def test_recorded_kernels_are_those_that_a_run_calls() -> None:
    assert children.output(COMPARE, ISTHMUS_DRIVER="numpy", ISTHMUS_STRICT="1") == "same"


MODEL = """
import torch
from torch import nn

class Net(nn.Linear):
    def __init__(self): super().__init__(4, 4)

    def forward(self, x):
        y = super().forward(x) + x
        y = y + y
        z = y.bfloat16() + 1
        return torch.lgamma(y), z[z > 0] if z.sum() > 0 else z
"""
LIBRARY = """
from isthmus.opset.library import Library

library = Library("mine", "a sum")

@library.operator("aten::add.Tensor", dtypes=["float32"])
def add(self, other, alpha, out):
    out[...] = self + alpha * other
"""


def ops(folder: Path, *words: str, **environment: str) -> str:
    (folder / "net.py").write_text(MODEL)
    (folder / "mine.py").write_text(LIBRARY)
    variables = {"ISTHMUS_HOST_DELEGATE": "0", "ISTHMUS_LIBRARIES": str(folder / "mine.py"), **environment}
    words = ("ops", "--driver", "host", "--model", "net:Net", "--input", "2x4", *words)
    done = children.command(*words, folder=folder, ISTHMUS_DRIVER=None, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_a_chip_lacks_is_listed_with_route_dtypes_shapes_and_reason(tmp_path: Path) -> None:
    head, *rows, total, lacking, guessed = ops(tmp_path).splitlines()
    assert head.split("\t") == ["operator", "calls", "route", "dtypes", "shapes", "reason"]
    table = {tuple(row.split("\t")[:3:2]): row.split("\t")[1:] for row in rows}
    assert table["aten::add.Tensor", "fallback"][2:] == [
        "bfloat16",
        "2x4 2x4 2x4",
        "no kernel takes bfloat16",
    ]
    assert ("aten::add.Tensor", "kernel") not in table
    parts = table["aten::addmm", "decomposition"][-1]
    assert "aten::mm" in parts
    assert "aten::mm" in {name for name, _ in table}
    assert "not in the opset" in table["aten::lgamma", "fallback"][-1]
    calls = [int(row.split("\t")[1]) for row in rows]
    assert calls == sorted(calls, reverse=True)
    assert f"{sum(calls)} calls" in lacking
    assert "aten::_local_scalar_dense (1), aten::index.Tensor (1)" in guessed
    assert "fallback" in total


def test_json_has_all_operators_and_a_route_selects(tmp_path: Path) -> None:
    rows = json.loads(ops(tmp_path, "--json", "--train"))["operators"]
    found = {(row["operator"], row["route"]): row for row in rows}
    assert found["aten::add.Tensor", "kernel"]["lacking"] is False
    assert found["aten::add.Tensor", "fallback"]["lacking"] is True
    assert any("_foreach" in row["operator"] for row in rows)
    only = ops(tmp_path, "--route", "kernel").splitlines()[1:-3]
    assert [row.split("\t")[0] for row in only] == ["aten::add.Tensor"]


def test_no_device_is_needed(tmp_path: Path) -> None:
    assert "aten::addmm" in ops(tmp_path, ISTHMUS_HOST_DEVICES="0")
