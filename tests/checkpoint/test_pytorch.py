"""PyTorch's, safetensors' and DeepSpeed's own code reads what is written, and writes what is read."""

from collections import OrderedDict
from math import prod

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file

from tests.helpers.checkpoints import CONFIGS, converted, same, weights, write_random


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return write_random(tmp_path_factory.mktemp("pytorch") / "llama", CONFIGS["llama"])


def equal(a, b):
    assert a.keys() == b.keys()
    assert all(a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]) for name in a)


def test_pytorch_loads_distributed_checkpoints(llama, tmp_path):
    state = {name: torch.zeros_like(each) for name, each in weights(llama).items()}
    dcp.load(state, checkpoint_id=converted(llama, tmp_path / "dcp", "dcp"), no_dist=True)
    equal(state, weights(llama))


@pytest.mark.parametrize("prefix", ["", "app.model."])
def test_distributed_checkpoints_of_pytorch(llama, tmp_path, prefix):
    dcp.save(
        {prefix + name: each for name, each in weights(llama).items()},
        checkpoint_id=tmp_path / "dcp",
        no_dist=True,
    )
    same(
        llama,
        converted(tmp_path / "dcp", tmp_path / "back", "huggingface", "--config", llama / "config.json"),
    )


def test_torch_loads_what_is_written(llama, tmp_path):
    target = converted(llama, tmp_path / "bin", "huggingface-bin")
    equal(torch.load(target / "pytorch_model.bin", weights_only=True), weights(llama))
    equal(torch.load(target / "pytorch_model.bin", weights_only=True, mmap=True), weights(llama))


@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_torch(llama, tmp_path, zipped):
    (tmp_path / "model").mkdir()
    state = weights(llama)
    state["lm_head.weight"] = state["lm_head.weight"].t().contiguous().t()  # a stride that is not its shape's
    state["model.norm.weight"] = torch.cat([torch.zeros(3).bfloat16(), state["model.norm.weight"]])[3:]
    torch.save(state, tmp_path / "model" / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    back = converted(tmp_path / "model", tmp_path / "back", "huggingface", "--config", llama / "config.json")
    same(llama, back)


def test_a_model_saved_without_its_head(tmp_path):
    source = write_random(tmp_path / "gpt2", CONFIGS["gpt2"])
    state = {name.removeprefix("transformer."): each for name, each in weights(source).items()}
    state |= {f"h.{layer}.attn.bias": torch.ones(1, 1, 64, 64) for layer in range(4)}
    (tmp_path / "base").mkdir()
    save_file(state, tmp_path / "base" / "model.safetensors")
    (tmp_path / "base" / "config.json").write_text((source / "config.json").read_text())
    same(source, converted(tmp_path / "base", tmp_path / "back", "huggingface"))


def partitions(state, ranks, stage):
    """Return the flat partitions of DeepSpeed for each rank, as its own code cuts them."""
    if stage == 3:
        parts = [[] for _ in range(ranks)]
        for each in state.values():
            length = -(-each.numel() // ranks)
            padded = torch.cat([each.flatten(), torch.zeros(length * ranks - each.numel())])
            for rank in range(ranks):
                parts[rank].append(padded[rank * length : (rank + 1) * length])
        return [torch.cat(part) for part in parts]
    flat = torch.cat([each.flatten() for each in state.values()])
    flat = torch.cat([flat, torch.zeros(-flat.numel() % (2 * ranks))])
    return list(flat.chunk(ranks))


@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("ranks", [1, 3])
def test_partitions_of_zero(llama, tmp_path, stage, ranks):
    step = tmp_path / "zero" / "global_step7"
    step.mkdir(parents=True)
    (tmp_path / "zero" / "latest").write_text("global_step7")
    state = {name: each.float() for name, each in weights(llama).items()}
    groups = [dict(list(state.items())[:20]), dict(list(state.items())[20:])]
    shapes = [OrderedDict((name, each.shape) for name, each in group.items()) for group in groups]
    name = "fp32_flat_groups" if stage == 3 else "single_partition_of_fp32_groups"
    cut = [partitions(group, ranks, stage) for group in groups]
    for rank in range(ranks):
        prefix = f"zero_pp_rank_{rank}_mp_rank_00" if stage == 3 else "mp_rank_00"
        module = {} if stage == 3 else {key: each.half() for key, each in state.items()}
        torch.save({"module": module, "param_shapes": shapes}, step / f"{prefix}_model_states.pt")
        optimizer = {name: [group[rank] for group in cut], "partition_count": ranks, "zero_stage": stage}
        torch.save(
            {"optimizer_state_dict": optimizer}, step / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        )
    back = converted(tmp_path / "zero", tmp_path / "back", "huggingface", "--config", llama / "config.json")
    found = load_file(back / "model.safetensors")
    equal(found, state)
    assert sum(prod(each.shape) for each in found.values()) == sum(each.numel() for each in state.values())
