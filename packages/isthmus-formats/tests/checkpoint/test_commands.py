"""inspect, diff, average, shard-size, reshard, formats: what they print and write."""

import json
import subprocess
import sys

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from isthmus_formats.checkpoint.containers.file_tensors import Stored
from tests.helpers.checkpoints import (
    CONFIGS,
    check_same,
    checkpoint,
    convert_checkpoint,
    weights,
    write_random,
)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return write_random(tmp_path_factory.mktemp("commands") / "llama", CONFIGS["llama"])


def printed(*arguments, code=0):
    result = checkpoint(*arguments)
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout


def changed(source, target, change):
    tensors = load_file(source / "model.safetensors")
    change(tensors)
    target.mkdir()
    save_file(tensors, target / "model.safetensors")
    (target / "config.json").write_text((source / "config.json").read_text())
    return target


def test_inspect(llama, tmp_path):
    convert_checkpoint(llama, tmp_path / "megatron", "megatron", "--tp", 2, "--pad-vocabulary", 64)
    found = json.loads(printed("inspect", tmp_path / "megatron", "--json", "--only", "embedding"))
    assert (
        found["format"] == "megatron" and found["layout"]["tp"] == 2 and found["layout"]["vocabulary"] == 128
    )
    assert found["parameters"] == sum(each.numel() for each in weights(llama).values())
    assert [each["shape"] for each in found["tensors"]] == [[64, 32], [64, 32]]
    text = printed("inspect", llama, "--only", "norm.weight$")
    assert "model.norm.weight\t32\tbfloat16\t\n" in text and "llama" in text.splitlines()[-1]


IMPORTED = """
import sys
from isthmus_common.shell import main
try:
    main()
finally:
    print({"torch.distributed.checkpoint", "torch._dynamo", "sympy"} & set(sys.modules), file=sys.stderr)
"""


@pytest.mark.full
def test_commands_import_torch_and_no_more_of_it(llama, tmp_path):
    """What they leave out takes longer to import than torch itself."""
    folder = convert_checkpoint(llama, tmp_path / "megatron", "megatron")
    command = [sys.executable, "-c", IMPORTED, "checkpoint", "inspect", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == "set()\n"


def test_diff(llama, tmp_path):
    other = convert_checkpoint(llama, tmp_path / "other", "mindformers", "--tp", 2)
    assert printed("diff", llama, other).endswith("0 of 39 parameters differ\n")

    def change(tensors):
        tensors["model.norm.weight"][3] += 1
        tensors["lm_head.weight"] = tensors["lm_head.weight"].float()

    third = changed(llama, tmp_path / "third", change)
    rows = json.loads(printed("diff", other, third, "--json", code=1))
    assert [row["name"] for row in rows] == ["norm.weight"]
    assert rows[0]["max"] == pytest.approx(1, abs=1e-2) and 0 < rows[0]["cosine"] < 1
    assert "bfloat16, float32" in printed("diff", other, third, "--all", "--tolerance", 2)


def test_nan_is_a_difference(llama, tmp_path):
    other = changed(llama, tmp_path / "nan", lambda tensors: tensors["model.norm.weight"].fill_(torch.nan))
    assert "nan" in printed("diff", llama, other, "--tolerance", 9, code=1)


def test_average(llama, tmp_path):
    other = changed(llama, tmp_path / "other", lambda tensors: tensors["model.norm.weight"].add_(4))
    printed(
        "average",
        llama,
        convert_checkpoint(other, tmp_path / "megatron", "megatron"),
        tmp_path / "mean",
        "--weights",
        "3,1",
    )
    expected = weights(llama)
    expected["model.norm.weight"] = (
        expected["model.norm.weight"].double() * 0.75 + weights(other)["model.norm.weight"].double() * 0.25
    ).bfloat16()
    found = weights(tmp_path / "mean")
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    refused = checkpoint("average", llama, other, tmp_path / "none", "--weights", "1")
    assert refused.exit_code == 2 and "expected 2 numbers" in refused.stderr


def test_shard_size(llama, tmp_path):
    printed("shard-size", llama, tmp_path / "shards", "--size", "20KB")
    files = sorted((tmp_path / "shards").glob("*.safetensors"))
    assert len(files) > 2 and files[0].name == f"model-00001-of-{len(files):05}.safetensors"
    check_same(llama, tmp_path / "shards")
    refused = checkpoint("shard-size", llama, tmp_path / "none", "--size", "5 apples")
    assert refused.exit_code == 2 and "expected a number" in refused.stderr


@pytest.mark.parametrize("stages", ["4,0", "0,4", "2,0,2"])
def test_stages_without_layers(llama, tmp_path, stages):
    """Megatron has such stages, in the middle even without tensors (pipeline_model_parallel_layout)."""
    pp = len(stages.split(","))
    at = convert_checkpoint(llama, tmp_path / "at", "megatron", "--pp", pp, "--stages", stages)
    files = [torch.load(path, weights_only=False) for path in sorted(at.glob("release/*/*.pt"))]
    assert [any("layers" in key for key in file["model"]) for file in files] == [
        each != "0" for each in stages.split(",")
    ]
    check_same(llama, convert_checkpoint(at, tmp_path / "back", "huggingface"))


def test_padding_is_reported(llama, tmp_path):
    said = printed("convert", llama, tmp_path / "padded", "--to", "megatron", "--tp", 4)
    assert said.splitlines()[1:] == ["vocabulary: 90 rows, padded to 92"]
    assert printed("reshard", tmp_path / "padded", tmp_path / "two", "--tp", 2).count("\n") == 1


def test_cast(llama, tmp_path):
    found = weights(convert_checkpoint(llama, tmp_path / "cast", "huggingface", "--dtype", "float16"))
    assert all(torch.equal(found[name], each.half()) for name, each in weights(llama).items())


def test_formats_lists_every_format():
    found = json.loads(printed("formats", "--json"))
    assert {"huggingface", "megatron", "mindformers", "dcp"} <= {each["format"] for each in found["formats"]}
    assert {"llama", "deepseek_v3"} <= set(found["architectures"])


ONE_OR_TWO = st.sampled_from([1, 2])
SIZES = st.fixed_dictionaries(
    {"--tp": st.sampled_from([1, 2, 4]), "--pp": ONE_OR_TWO, "--vpp": ONE_OR_TWO, "--ep": ONE_OR_TWO}
)


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    name=st.sampled_from(sorted(CONFIGS)),
    first=SIZES,
    second=SIZES,
    padding=st.integers(1, 33),
    rotary=st.sampled_from(["half", "interleaved"]),
)
def test_any_layout_becomes_any_other(tmp_path_factory, name, first, second, padding, rotary):
    folder = tmp_path_factory.mktemp("reshard")
    source = write_random(folder / "source", CONFIGS[name])

    def options(sizes):
        experts = any("expert" in key for key in CONFIGS[name])
        return [each for pair in sizes.items() if experts or pair[0] != "--ep" for each in pair]

    more = ("--pad-vocabulary", padding, "--rotary", rotary)
    convert_checkpoint(source, folder / "first", "megatron", *options(first), *more)
    printed("reshard", folder / "first", folder / "second", *options(second))
    check_same(source, convert_checkpoint(folder / "second", folder / "back", "huggingface"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["llama-tied-biased", "qwen2", "llama"])
@pytest.mark.parametrize("rotary", ["half", "interleaved"])
def test_around_the_frameworks(tmp_path, name, rotary):
    source = write_random(tmp_path / "source", CONFIGS[name])
    megatron = ("megatron", "--tp", 4, "--pp", 2, "--vpp", 2, "--pad-vocabulary", 32, "--rotary", rotary)
    at = convert_checkpoint(source, tmp_path / "megatron", *megatron)
    at = convert_checkpoint(
        at, tmp_path / "mindformers", "mindformers", "--tp", 2, "--dp", 2, "--rotary", rotary
    )
    check_same(source, convert_checkpoint(at, tmp_path / "back", "huggingface"))


@pytest.mark.parametrize(
    "name, route", [("mixtral", "mindformers"), ("gpt2", "huggingface-bin"), ("qwen2", "megatron")]
)
def test_every_tensor_is_read_once(tmp_path, monkeypatch, name, route):
    source = convert_checkpoint(write_random(tmp_path / "source", CONFIGS[name]), tmp_path / "other", route)
    read = []
    original = Stored.read
    monkeypatch.setattr(Stored, "read", lambda self: read.append((self.path, self.parts)) or original(self))
    convert_checkpoint(source, tmp_path / "back", "huggingface")
    assert len(read) == len(set(read))
