"""Models of ``isthmus ops --model``: configurations, classes, and errors in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from isthmus.coverage.models import Input, load, parse_input
from isthmus_common.application import app

MODELS = """
from torch import nn

class Net(nn.Linear):
    def __init__(self): super().__init__(4, 4)

class Sized(nn.Linear):
    pass

def number(): return 3

class Reads(Net):
    def forward(self, x): return x.numpy()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "coverage_models.py").write_text(MODELS)
    (tmp_path / "coverage_absent.py").write_text("import no_such_package\n")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "unknown.json").write_text('{"model_type": "no_such_model"}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            "nothing/here",
            "nothing/here: no such file or folder; give one with a config.json, or package.module:Class",
        ),
        ("nothing.json", "nothing.json: No such file or directory"),
        (".", "config.json: No such file or directory"),
        ("broken.json", "broken.json: not JSON: "),
        ("other.json", "other.json: not a Hugging Face configuration: it has no model_type"),
        ("unknown.json", "has no model type 'no_such_model'"),
        (
            "no_such_module:Net",
            "no_such_module:Net: no module no_such_module in the current folder or installed",
        ),
        ("coverage_absent:Net", "needs the package no_such_package, which is not installed"),
        ("coverage_models.Nothing", "coverage_models.Nothing: coverage_models has no Nothing"),
        (
            "coverage_models:Net",
            "give the shape of each argument of its forward, such as --input 1x3x224x224",
        ),
        ("coverage_models:Sized --input 4", "takes arguments (in_features, out_features); name"),
        ("coverage_models:number --input 4", "returns int, expected a torch.nn.Module"),
        ("coverage_models:Net --input 4x", "--input 4x: expected a shape and a dtype, such as "),
        ("coverage_models:Net --input 2x5", "cannot be called without data (fake tensors): RuntimeError: "),
        ("coverage_models:Reads --input 4", "cannot be called without data (fake tensors): RuntimeError: "),
    ],
)
def test_an_error_is_one_line(folder: Path, words: str, error: str) -> None:
    done = CliRunner().invoke(app, ["ops", "--model", *words.split()])
    assert done.exit_code == 1
    assert done.stderr.startswith("isthmus: ")
    assert error in done.stderr
    assert done.stderr.count("\n") == 1
    assert not done.stdout


def test_code_of_a_configuration_runs_on_request_only(folder: Path) -> None:
    table = {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModel": "own.OwnModel"}}
    (folder / "config.json").write_text(json.dumps(table))
    (folder / "own.py").write_text("raise RuntimeError('the code ran')\n")
    done = CliRunner().invoke(app, ["ops", "--model", "."])
    assert done.exit_code == 1
    assert "auto_map" in done.stderr
    assert "the code ran" not in done.stderr
    done = CliRunner().invoke(app, ["ops", "--model", ".", "--trust-remote-code"])
    assert done.exit_code == 1
    assert "the code ran" in done.stderr


def test_a_model_that_transformers_has_needs_no_other_code(folder: Path) -> None:
    table = {"model_type": "bert", "num_hidden_layers": 1, "auto_map": {"AutoConfig": "own.Own"}}
    (folder / "config.json").write_text(json.dumps(table))
    assert type(load(str(folder), [], False).module).__name__ == "BertLMHeadModel"


@pytest.mark.parametrize(
    ("table", "named", "labels"),
    [
        (
            {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16"},
            {"input_ids": Input((1, 512), torch.int64)},
            (1, 512),
        ),
        (
            {"model_type": "vit", "architectures": ["ViTForImageClassification"]},
            {"pixel_values": Input((1, 3, 224, 224), torch.float32)},
            (1,),
        ),
        (
            {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]},
            {"input_ids": Input((1, 512), torch.int64), "decoder_input_ids": Input((1, 16), torch.int64)},
            (1, 16),
        ),
    ],
    ids=lambda each: each.get("model_type", "") if isinstance(each, dict) else "",
)
def test_a_configuration_has_inputs_and_no_weights(folder, table, named, labels) -> None:
    (folder / "config.json").write_text(json.dumps({**table, "num_hidden_layers": 1, "num_layers": 1}))
    model = load(str(folder / "config.json"), [], False)
    assert (model.named, model.labels) == (named, labels)
    assert all(each.is_meta for each in model.module.parameters())
    dtype = getattr(torch, table.get("torch_dtype", "float32"))
    assert {each.dtype for each in model.module.parameters()} == {dtype}


def test_inputs() -> None:
    assert parse_input("1x3x224x224") == Input((1, 3, 224, 224), torch.float32)
    assert parse_input("512:int64") == Input((512,), torch.int64)
