"""A conversion loses nothing silently: casts out of range, tied outputs with values of their own, failures midway."""

import errno
import json
import os
import time

import pytest
import torch
from safetensors.torch import load_file, save_file

from isthmus_common.files import lock_file
from isthmus_formats.checkpoint import convert
from isthmus_formats.checkpoint.containers.file_tensors import Stored
from tests.helpers.checkpoints import (
    CONFIGS,
    check_refused,
    check_same,
    checkpoint,
    convert_checkpoint,
    weights,
    write_random,
)


def changed(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize(
    "stored, value, to",
    [
        (torch.bfloat16, 1e5, "float16"),
        (torch.float32, -7e4, "float16"),
        (torch.float32, 3.4e38, "bfloat16"),
        (torch.float64, 1e39, "float32"),
    ],
    ids=str,
)
@pytest.mark.parametrize("route", ["huggingface", "megatron --tp 2", "mindformers"])
def test_casts_that_overflow(tmp_path, stored, value, to, route):
    source = write_random(tmp_path / "source", CONFIGS["llama"], stored)
    changed(source, lambda tensors: tensors["model.norm.weight"].__setitem__(slice(3), value))
    said = check_refused(source, *route.split(), "--dtype", to)
    assert "3 values of model.norm.weight" in said and to in said and "give a wider --dtype" in said


@pytest.mark.parametrize(
    "route", ["megatron --tp 2", "meta --tp 2", "mindformers --names concatenated --dp 2"]
)
def test_casts_of_ranks_that_overflow(tmp_path, route):
    source = write_random(tmp_path / "source", CONFIGS["llama"], torch.float32)
    changed(
        source, lambda tensors: tensors["model.layers.2.self_attn.q_proj.weight"].__setitem__((-1, -1), 1e6)
    )
    ranks = convert_checkpoint(source, tmp_path / "ranks", *route.split())
    assert "1 values of" in check_refused(ranks, "huggingface", "--dtype", "float16")


def test_casts_keep_what_is_infinite_already_and_tell_what_becomes_0(tmp_path):
    source = write_random(tmp_path / "source", CONFIGS["llama"], torch.float32)

    def change(tensors):
        tensors["model.norm.weight"][:3] = torch.tensor([float("inf"), float("nan"), 1e-30])

    changed(source, change)
    result = checkpoint("convert", source, tmp_path / "target", "--to", "huggingface", "--dtype", "float16")
    assert (
        result.exit_code == 0
        and "1 values of 1 tensors are too small for float16 and become 0" in result.stderr
    )
    found = weights(tmp_path / "target")["model.norm.weight"][:3].float()
    assert found[0] == float("inf") and found[1].isnan() and found[2] == 0


def test_the_bias_of_a_router_is_not_cast(tmp_path):
    source = write_random(tmp_path / "source", CONFIGS["deepseek_v3"], torch.float32)
    name = "model.layers.1.mlp.gate.e_score_correction_bias"
    changed(source, lambda tensors: tensors[name].fill_(1e6))
    back = convert_checkpoint(source, tmp_path / "target", "huggingface", "--dtype", "float16")
    assert torch.equal(weights(back)[name], torch.full((4,), 1e6))


ROUTES = [
    *("huggingface-bin", "dcp", "deepspeed", "megatron --tp 2 --pp 2", "megatron-dist --pad-vocabulary 64"),
    *("mindformers --dp 2 --pp 2", "meta --tp 2", "internevo --names llama --tp 2 --pp 2"),
]


@pytest.mark.parametrize("route", ROUTES)
def test_an_output_with_values_of_its_own_is_kept(tmp_path, route):
    source = write_random(tmp_path / "source", CONFIGS["llama"])
    config = CONFIGS["llama"] | {"tie_word_embeddings": True}
    (source / "config.json").write_text(json.dumps(config))
    target = convert_checkpoint(source, tmp_path / "target", *route.split())
    assert json.loads((target / "config.json").read_text())["tie_word_embeddings"] is False
    # Imitates the output of another tool, with a config.json that ties.
    (target / "isthmus-manifest.json").unlink()
    (target / "config.json").write_text(json.dumps(config))
    back = convert_checkpoint(target, tmp_path / "back", "huggingface")
    check_same(source, back)
    assert json.loads((back / "config.json").read_text())["tie_word_embeddings"] is False


def test_an_output_with_the_values_of_the_embedding_is_tied(tmp_path):
    source = write_random(tmp_path / "source", CONFIGS["llama-tied"])
    copy = write_random(tmp_path / "copy", CONFIGS["llama-tied"])
    (copy / "model.safetensors").write_bytes((source / "model.safetensors").read_bytes())
    changed(
        copy, lambda tensors: tensors.update({"lm_head.weight": tensors["model.embed_tokens.weight"].clone()})
    )
    back = convert_checkpoint(copy, tmp_path / "back", "huggingface")
    check_same(source, back)
    assert (back / "config.json").read_bytes() == (source / "config.json").read_bytes()
    changed(copy, lambda tensors: tensors.update({"output.weight": torch.zeros(2)}))
    assert "output.weight unknown to the architecture" in check_refused(copy, "megatron")
    changed(
        copy,
        lambda tensors: (
            tensors.update({"lm_head.weight": torch.zeros(9, 32)}) or tensors.pop("output.weight")
        ),
    )
    assert "lm_head.weight has the shape (9, 32)" in check_refused(copy, "megatron")


def test_a_different_copy_in_the_last_stage_is_not_lost(tmp_path):
    source = write_random(tmp_path / "source", CONFIGS["llama-tied"])
    target = convert_checkpoint(source, tmp_path / "target", "megatron", "--pp", 2)
    (target / "isthmus-manifest.json").unlink()
    path = target / "release" / "mp_rank_00_001" / "model_optim_rng.pt"
    content = torch.load(path, weights_only=False)
    content["model"]["output_layer.weight"] += 1
    torch.save(content, path)
    back = weights(convert_checkpoint(target, tmp_path / "back", "huggingface"))
    assert torch.equal(back["lm_head.weight"], content["model"]["output_layer.weight"])
    assert torch.equal(back["model.embed_tokens.weight"], weights(source)["model.embed_tokens.weight"])


@pytest.mark.parametrize("name, route", [("qwen2", "megatron"), ("mixtral", "mindformers")])
def test_types_that_cannot_be_stored_together_or_at_all(tmp_path, name, route):
    source = write_random(tmp_path / "source", CONFIGS[name])

    def narrow(tensors):
        for key in list(tensors)[::3]:
            tensors[key] = tensors[key].to(torch.float8_e5m2)

    said = check_refused(changed(source, narrow), route)
    assert "cannot be stored in one tensor" in said or "cannot store the data type float8_e5m2" in said


def test_ranks_of_different_types(tmp_path):
    source = write_random(tmp_path / "source", CONFIGS["llama"], torch.float16)
    target = convert_checkpoint(source, tmp_path / "ranks", "meta", "--tp", 2)
    (target / "isthmus-manifest.json").unlink()
    content = torch.load(target / "consolidated.01.pth")
    content["layers.0.attention.wq.weight"] = content["layers.0.attention.wq.weight"].float()
    torch.save(content, target / "consolidated.01.pth")
    assert "layers.0.attention.wq.weight of consolidated.01.pth is float32, but float16" in check_refused(
        target, "dcp"
    )


def test_a_failure_midway_leaves_nothing(tmp_path):
    source = convert_checkpoint(
        write_random(tmp_path / "source", CONFIGS["llama"]), tmp_path / "copy", "huggingface"
    )
    data = (source / "model.safetensors").read_bytes()
    (source / "model.safetensors").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert "does not match its hash" in check_refused(source, "megatron")


def test_the_configuration_given_is_that_of_the_target(tmp_path):
    source = write_random(tmp_path / "source", CONFIGS["llama"])
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["llama"] | {"rope_theta": 5e5}))
    target = convert_checkpoint(source, tmp_path / "target", "dcp", "--config", tmp_path / "config.json")
    assert json.loads((target / "config.json").read_text())["rope_theta"] == 5e5
    assert json.loads((target / "isthmus-manifest.json").read_text())["config"]["rope_theta"] == 5e5


def test_layers_that_predict_further_tokens_are_left_out_and_named(tmp_path):
    source = write_random(tmp_path / "source", CONFIGS["deepseek_v3"] | {"num_nextn_predict_layers": 1})
    changed(source, lambda tensors: tensors.update({"model.layers.4.enorm.weight": torch.zeros(32)}))
    result = checkpoint("convert", source, tmp_path / "target", "--to", "dcp")
    assert (
        result.exit_code == 0
        and "1 tensors of layers that predict further tokens are left out" in result.stderr
    )


def interrupted(monkeypatch, source, target, *options):
    """Fail a conversion in the middle as a full disk does, and return its command."""
    journal = target.with_name(f".{target.name}.isthmus-partial") / ".journal"
    command = "convert", source, target, "--to", "huggingface", *options
    write, left = Stored.write, iter(range(9))

    def write_some(self, tensor):
        if next(left, None) is None:
            while "\n" not in journal.read_text():  # until a tensor is noted as written
                time.sleep(0.001)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        return write(self, tensor)

    with monkeypatch.context() as patch:
        patch.setattr(Stored, "write", write_some)
        result = checkpoint(*command)
    assert result.exit_code == 1 and "No space left" in result.stderr
    return command


def test_the_configuration_given_replaces_a_damaged_one(tmp_path):
    source = write_random(tmp_path / "source", CONFIGS["llama"])
    (source / "config.json").rename(tmp_path / "config.json")
    for name, damaged in ("a", b"{"), ("b", b"[]"), ("c", b"\xff"):
        (source / "config.json").write_bytes(damaged)
        target = convert_checkpoint(source, tmp_path / name, "dcp", "--config", tmp_path / "config.json")
        assert json.loads((target / "config.json").read_text()) == CONFIGS["llama"]


@pytest.mark.parametrize("to, read", [("bfloat16", 39), ("float32", 0)])
def test_a_cast_is_checked_once(tmp_path, monkeypatch, to, read):
    source = write_random(tmp_path / "source", CONFIGS["llama"], torch.float32)
    changed(source, lambda tensors: tensors["model.norm.weight"].__setitem__(slice(3), 1e-45))
    check, checked = convert._out_of_range, []
    monkeypatch.setattr(convert, "_out_of_range", lambda *each: checked.append(each[0].shape) or check(*each))
    command = interrupted(monkeypatch, source, tmp_path / "target", "--dtype", to)
    assert len(checked) == read
    result = checkpoint(*command)
    assert result.exit_code == 0 and "of 39 tensors are already written" in result.stderr
    assert len(checked) == read
    assert ("3 values of 1 tensors are too small for bfloat16" in result.stderr) == bool(read)


def test_a_cast_is_not_checked_while_another_conversion_writes(tmp_path, monkeypatch):
    source = write_random(tmp_path / "source", CONFIGS["llama"], torch.float32)
    monkeypatch.setattr(convert, "_out_of_range", None)
    (tmp_path / ".target.isthmus-partial").mkdir()
    with lock_file(tmp_path / ".target.isthmus-partial"):
        assert "another conversion is writing it" in check_refused(source, "dcp", "--dtype", "float16")


def test_a_check_of_a_cast_holds_few_tensors_at_a_time(tmp_path, monkeypatch):
    source = write_random(tmp_path / "source", CONFIGS["llama"], torch.float32)
    check, working, most = convert._out_of_range, [], []

    def counted(*each):
        working.append(each)
        most.append(len(working))
        time.sleep(0.002)
        result = check(*each)
        working.pop()
        return result

    monkeypatch.setattr(convert, "_out_of_range", counted)
    monkeypatch.setattr(convert, "_AT_ONCE", 1)
    convert_checkpoint(source, tmp_path / "target", "dcp", "--dtype", "float16", "--workers", 8)
    assert len(most) == 39 and max(most) == 1


@pytest.mark.parametrize("damage", [lambda text: text[:-9], lambda text: f"{text}\n[[", lambda text: text])
def test_a_journal_that_ends_within_a_line(tmp_path, monkeypatch, damage):
    source = write_random(tmp_path / "source", CONFIGS["llama"])
    journal = tmp_path / ".target.isthmus-partial" / ".journal"
    for _ in range(3):
        command = interrupted(monkeypatch, source, tmp_path / "target")
        journal.write_text(damage(journal.read_text()))
    assert checkpoint(*command).exit_code == 0
    check_same(source, tmp_path / "target")


def test_a_journal_without_a_head_is_removed(tmp_path, monkeypatch):
    source = write_random(tmp_path / "source", CONFIGS["llama"])
    command = interrupted(monkeypatch, source, tmp_path / "target")
    (tmp_path / ".target.isthmus-partial" / ".journal").write_text("{")
    result = checkpoint(*command)
    assert result.exit_code == 1 and ".journal: damaged" in result.stderr
    assert result.stderr.count("\n") == 1
    convert_checkpoint(source, tmp_path / "target", "huggingface")


def test_an_average_out_of_range(tmp_path):
    for name, value in ("a", 6e4), ("b", -6e4):
        folder = write_random(tmp_path / name, CONFIGS["llama"], torch.float16)
        changed(folder, lambda tensors, value=value: tensors["model.norm.weight"].fill_(value))
    result = checkpoint("average", tmp_path / "a", tmp_path / "b", tmp_path / "c", "--weights", "3,-1")
    assert result.exit_code == 1 and "norm.weight: the average exceeds the range of float16" in result.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "b"]
