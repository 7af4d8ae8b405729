"""PyTorch's, safetensors' and DeepSpeed's own code reads what is written, and writes what is read."""

from collections import OrderedDict
from math import prod

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file

from isthmus_formats.checkpoint.containers import torch_file
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
    return write_random(tmp_path_factory.mktemp("pytorch") / "llama", CONFIGS["llama"])


def equal(a, b):
    assert a.keys() == b.keys()
    assert all(a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]) for name in a)


def test_pytorch_loads_distributed_checkpoints(llama, tmp_path):
    state = {name: torch.zeros_like(each) for name, each in weights(llama).items()}
    dcp.load(state, checkpoint_id=convert_checkpoint(llama, tmp_path / "dcp", "dcp"), no_dist=True)
    equal(state, weights(llama))


@pytest.mark.parametrize("prefix", ["", "app.model."])
def test_distributed_checkpoints_of_pytorch(llama, tmp_path, prefix):
    dcp.save(
        {prefix + name: each for name, each in weights(llama).items()},
        checkpoint_id=tmp_path / "dcp",
        no_dist=True,
    )
    check_same(
        llama,
        convert_checkpoint(
            tmp_path / "dcp", tmp_path / "back", "huggingface", "--config", llama / "config.json"
        ),
    )


WRAPPED = {
    "activation checkpointing": lambda name: name.replace(".mlp.", "._checkpoint_wrapped_module.mlp."),
    "FSDP1": lambda name: "_fsdp_wrapped_module." + name.replace(".mlp", "._fsdp_wrapped_module.mlp"),
    "compiled": lambda name: "_orig_mod." + name.replace(".self_attn.", "._orig_mod.self_attn._orig_mod."),
    "nested": lambda name: "module._orig_mod." + name.replace("model.", "model._fsdp_wrapped_module.module."),
    "last": lambda name: name.replace(".weight", "._checkpoint_wrapped_module.weight"),
}


@pytest.mark.parametrize("kind", ["dcp", "huggingface-bin", "deepspeed"])
@pytest.mark.parametrize("wrapped", WRAPPED)
def test_names_of_modules_that_wrap_others(llama, tmp_path, kind, wrapped):
    state = {WRAPPED[wrapped](name): each for name, each in weights(llama).items()}
    folder = tmp_path / "wrapped"
    folder.mkdir()
    if kind == "dcp":
        dcp.save({"model": state}, checkpoint_id=folder, no_dist=True)
    elif kind == "deepspeed":
        torch.save({"module": state}, folder / "mp_rank_00_model_states.pt")
    else:
        torch.save(state, folder / "pytorch_model.bin")
    check_same(
        llama, convert_checkpoint(folder, tmp_path / "back", "huggingface", "--config", llama / "config.json")
    )


def test_names_that_are_equal_without_wrappers(llama, tmp_path):
    state = weights(llama)
    state["_orig_mod.model.norm.weight"] = state["model.norm.weight"] + 1
    (tmp_path / "twice").mkdir()
    torch.save(state, tmp_path / "twice" / "pytorch_model.bin")
    result = checkpoint("inspect", tmp_path / "twice", "--config", llama / "config.json")
    assert result.exit_code == 1 and "model.norm.weight and another tensor" in result.stderr


def test_torch_loads_what_is_written(llama, tmp_path):
    target = convert_checkpoint(llama, tmp_path / "bin", "huggingface-bin")
    equal(torch.load(target / "pytorch_model.bin", weights_only=True), weights(llama))
    equal(torch.load(target / "pytorch_model.bin", weights_only=True, mmap=True), weights(llama))


@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_torch(llama, tmp_path, zipped):
    (tmp_path / "model").mkdir()
    state = weights(llama)
    state["lm_head.weight"] = state["lm_head.weight"].t().contiguous().t()  # a stride that is not its shape's
    state["model.norm.weight"] = torch.cat([torch.zeros(3).bfloat16(), state["model.norm.weight"]])[3:]
    torch.save(state, tmp_path / "model" / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    back = convert_checkpoint(
        tmp_path / "model", tmp_path / "back", "huggingface", "--config", llama / "config.json"
    )
    check_same(llama, back)


def test_a_model_saved_without_its_head(tmp_path):
    source = write_random(tmp_path / "gpt2", CONFIGS["gpt2"])
    state = {name.removeprefix("transformer."): each for name, each in weights(source).items()}
    state |= {f"h.{layer}.attn.bias": torch.ones(1, 1, 64, 64) for layer in range(4)}
    (tmp_path / "base").mkdir()
    save_file(state, tmp_path / "base" / "model.safetensors")
    (tmp_path / "base" / "config.json").write_text((source / "config.json").read_text())
    check_same(source, convert_checkpoint(tmp_path / "base", tmp_path / "back", "huggingface"))


def partitions(state, ranks, stage, paddings=None):
    """Return the flat partitions of DeepSpeed for each rank, as its own code cuts them."""
    if stage == 3:
        parts = [[] for _ in range(ranks)]
        for each in state.values():
            for rank, part in enumerate(fragments(each, ranks)):
                parts[rank].append(part)
        return [torch.cat(part) for part in parts]
    paddings = paddings or [0] * len(state)
    padded = [
        torch.cat([each.flatten(), torch.full((more,), 7.0)])
        for each, more in zip(state.values(), paddings, strict=True)
    ]
    flat = torch.cat(padded)
    flat = torch.cat([flat, torch.zeros(-flat.numel() % (2 * ranks))])
    return list(flat.chunk(ranks))


def fragments(tensor, ranks):
    """Return what the ranks of ZeRO 3 have of a parameter."""
    length = -(-tensor.numel() // ranks)
    return torch.cat([tensor.flatten(), tensor.new_zeros(length * ranks - tensor.numel())]).split(length)


def save_zero(folder, state, stage, ranks, *, frozen=(), padded=False):
    """Write a checkpoint of DeepSpeed with two groups of parameters."""
    step = folder / "global_step7"
    step.mkdir(parents=True)
    (folder / "latest").write_text("global_step7")
    trained = [name for name in state if name not in frozen]
    half = len(trained) // 2
    groups = [{name: state[name] for name in names} for names in (trained[:half], trained[half:])]
    shapes = [OrderedDict((name, each.shape) for name, each in group.items()) for group in groups]
    paddings = [[index % 3 for index in range(len(group))] for group in groups] if padded else [None, None]
    name = "fp32_flat_groups" if stage == 3 else "single_partition_of_fp32_groups"
    cut = [partitions(group, ranks, stage, after) for group, after in zip(groups, paddings, strict=True)]
    for rank in range(ranks):
        prefix = f"zero_pp_rank_{rank}_mp_rank_00" if stage == 3 else "mp_rank_00"
        module = {} if stage == 3 else {key: each.half() for key, each in state.items()}
        own = {
            key: fragments(state[key], ranks)[rank].clone() if stage == 3 else state[key] for key in frozen
        }
        model = {"module": module, "param_shapes": shapes, "buffer_names": [], "shared_params": {}}
        if frozen:
            model["frozen_param_shapes"] = {key: state[key].shape for key in frozen}
            model["frozen_param_fragments"] = own
        torch.save(model, step / f"{prefix}_model_states.pt")
        optimizer = {name: [group[rank] for group in cut], "partition_count": ranks, "zero_stage": stage}
        if padded:
            optimizer["param_alignment_paddings"] = paddings
        torch.save(
            {"optimizer_state_dict": optimizer}, step / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        )
    return step


@pytest.mark.parametrize("frozen", [0, 1, 20])
@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("ranks", [1, 3, 11])
def test_partitions_of_zero(llama, tmp_path, stage, ranks, frozen):
    state = {name: each.float() for name, each in weights(llama).items()}
    chosen = list(state)[:frozen]
    for name in chosen[::2]:
        state[name] = state[name].bfloat16()  # frozen parameters keep their type
    save_zero(tmp_path / "zero", state, stage, ranks, frozen=chosen, padded=stage == 2)
    back = convert_checkpoint(
        tmp_path / "zero", tmp_path / "back", "huggingface", "--config", llama / "config.json"
    )
    found = load_file(back / "model.safetensors")
    equal(found, state)
    assert sum(prod(each.shape) for each in found.values()) == sum(each.numel() for each in state.values())


@pytest.mark.parametrize("frozen", [0, 1])
def test_files_of_other_ranks_are_read_for_frozen_parameters_alone(llama, tmp_path, monkeypatch, frozen):
    state = {name: each.float() for name, each in weights(llama).items()}
    save_zero(tmp_path / "zero", state, 3, 3, frozen=list(state)[:frozen])
    read, paths = torch_file.read, []
    monkeypatch.setattr(
        torch_file, "read", lambda path, **options: paths.append(path) or read(path, **options)
    )
    result = checkpoint("inspect", tmp_path / "zero", "--config", llama / "config.json")
    assert result.exit_code == 0, result.output
    assert sum("model_states" in path.name for path in paths) == (3 if frozen else 1)
    assert len(paths) == len(set(paths))


@pytest.mark.parametrize(
    "entry, value, said",
    [
        ("param_alignment_paddings", [[0]], "param_alignment_paddings has the lengths [1]"),
        ("param_alignment_paddings", [[0], [0, 0, 0]], "param_alignment_paddings has the lengths [1, 3]"),
        ("param_alignment_paddings", [3, 3], "damaged"),
        ("param_alignment_paddings", [["a"] * 19, ["a"] * 20], "damaged"),
        ("partition_count", "two", "files *_optim_states.pt"),
        ("partition_count", {}, "files *_optim_states.pt"),
        ("param_shapes", [3], "damaged"),
        ("param_shapes", {"a": 1}, "damaged"),
        ("param_shapes", [{"model.norm.weight": 32}, {}], "damaged"),
        ("frozen_param_shapes", [1], "damaged"),
        ("frozen_param_shapes", {"model.norm.weight": None}, "damaged"),
        ("shared_params", [1], "damaged"),
    ],
)
def test_partitions_of_zero_that_are_damaged(llama, tmp_path, entry, value, said):
    state = {name: each.float() for name, each in weights(llama).items()}
    step = save_zero(tmp_path / "zero", state, 2, 2, padded=True)
    for path in step.iterdir():
        content = torch.load(path)
        (content["optimizer_state_dict"] if "optim" in path.name else content)[entry] = value
        torch.save(content, path)
    result = checkpoint("inspect", tmp_path / "zero", "--config", llama / "config.json")
    assert result.exit_code == 1 and said in result.stderr, (result.output, result.exception)
    assert result.stderr.count("\n") == 1


def test_partitions_of_zero_that_are_incomplete(llama, tmp_path):
    state = {name: each.float() for name, each in weights(llama).items()}
    inspect = "inspect", tmp_path / "zero", "--config", llama / "config.json"
    step = save_zero(tmp_path / "zero", state, 3, 3, frozen=["lm_head.weight"])
    second = step / "zero_pp_rank_1_mp_rank_00_model_states.pt"
    content = torch.load(second)
    torch.save(content | {"frozen_param_fragments": {}}, second)
    result = checkpoint(*inspect)
    assert result.exit_code == 1 and "lacks the fragment of the frozen parameter lm_head" in result.stderr
    (step / "zero_pp_rank_2_mp_rank_00_model_states.pt").unlink()
    result = checkpoint(*inspect)
    assert result.exit_code == 1 and "2 of 3 files *_model_states.pt; copy all ranks" in result.stderr
    path = step / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"
    content = torch.load(path)
    content["optimizer_state_dict"]["fp32_flat_groups"].append(torch.zeros(8))
    torch.save(content, path)
    result = checkpoint(*inspect)
    assert result.exit_code == 1 and "param_shapes calls for" in result.stderr
