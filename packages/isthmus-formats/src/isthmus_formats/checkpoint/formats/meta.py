"""Meta's LLaMA files: consolidated.XX.pth for each tensor-parallel rank, params.json."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from isthmus_common.files import write_file
from isthmus_formats.checkpoint.architectures import Config, Model
from isthmus_formats.checkpoint.architectures.decoder import head_size, sliding_window
from isthmus_formats.checkpoint.containers import torch_file
from isthmus_formats.checkpoint.containers.file_tensors import Stored
from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.formats.base import (
    Format,
    Options,
    Shapes,
    Tensors,
    by_file,
    ranks,
    read_json,
)
from isthmus_formats.checkpoint.formats.megatron import check
from isthmus_formats.checkpoint.layout import Layout, Piece, shard
from isthmus_formats.checkpoint.name_tables import fuse_by_table, table
from isthmus_formats.checkpoint.rope import Rope, rope

RULES = table("""
tok_embeddings.weight = embedding.weight
layers.{layer}.attention_norm.weight = input_norm.weight
layers.{layer}.attention.wq.weight = attention.q.weight
layers.{layer}.attention.wk.weight = attention.k.weight
layers.{layer}.attention.wv.weight = attention.v.weight
layers.{layer}.attention.wo.weight = attention.o.weight
layers.{layer}.ffn_norm.weight = mlp_norm.weight
layers.{layer}.feed_forward.w1.weight = mlp.gate.weight
layers.{layer}.feed_forward.w3.weight = mlp.up.weight
layers.{layer}.feed_forward.w2.weight = mlp.down.weight
norm.weight = norm.weight
output.weight = output.weight
""")
# The scaling in Meta's code, which params.json only switches on.
_SCALING = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_LLAMA3 = 128_000  # a vocabulary of this size: rows of the embedding are split, before LLaMA 3 its columns


class Meta(Format):
    """``consolidated.00.pth`` and so on."""

    name = "meta"
    meaning = "Meta's LLaMA: consolidated.*.pth and params.json"
    whole = False
    sharded = ("tp",)

    def matches(self, folder: Path) -> bool:
        """Return whether a folder is a checkpoint of this format."""
        return any(folder.glob("consolidated.*.pth"))

    def config(self, folder: Path) -> Config | None:
        """Return the configuration of the model, from params.json if there is no config.json."""
        config = super().config(folder)
        if not (folder / "params.json").is_file():
            return config
        params = read_json(folder / "params.json")
        if config is None:
            return _config(folder, params)
        # Meta's loader reads params.json, transformers config.json: one of them would be silently wrong.
        if (theirs := _rope(params, config.get("vocab_size", 0))) != (ours := rope(config)):
            raise CheckpointError(
                f"{folder}: params.json has {theirs}, but config.json {ours}; delete the wrong file"
            )
        return config

    def read(self, folder: Path, options: Options) -> Tensors:
        """Return the tensors of a checkpoint, without their data."""
        paths: dict[tuple[int, ...], Path] = {}
        for path in sorted(folder.glob("consolidated.*.pth")):
            if not (match := re.fullmatch(r"consolidated\.(\d+)\.pth", path.name)):
                raise CheckpointError(f"{path}: not the name of a rank; expected consolidated.00.pth")
            if (rank := (int(match[1]),)) in paths:
                raise CheckpointError(
                    f"{path} and {paths[rank].name} are the same rank; remove the stale one"
                )
            paths[rank] = path
        ranks(paths, "tensor")
        return {
            (f"consolidated.{rank:02}.pth", key): tensor
            for (rank,), path in paths.items()
            for key, tensor in torch_file.read(path, allow_pickle=options.allow_pickle)[0].items()
        }

    def layout(self, folder: Path, tensors: Tensors, model: Model) -> Layout:
        """Return the layout that the files have."""
        first = tensors["consolidated.00.pth", "tok_embeddings.weight"]
        by_columns = first.shape[0] == model.config["vocab_size"]
        return Layout(len({file for file, _ in tensors}), embedding=int(by_columns), interleaved=True)

    def default(self, model: Model) -> Layout:
        """Return the layout of a checkpoint to write."""
        return Layout(embedding=int(model.config["vocab_size"] < _LLAMA3), interleaved=True)

    def pieces(self, model: Model, layout: Layout) -> Iterator[Piece]:
        """Return the tensors of a checkpoint of a model."""
        check(model, layout)
        for each in fuse_by_table(RULES, model.parameters, model.type, self.name):
            for rank in range(layout.tp):
                slices = [shard(part, layout, rank) for part in each.parameters]
                copy = rank > 0 and slices[0][0].shape == each.parameters[0].shape
                file = f"consolidated.{rank:02}.pth"
                yield each.piece(file, each.key(), slices, 1, interleaved=layout.interleaved, replica=copy)
                if model.is_tied and each.parameters[0].role == "embedding.weight":
                    rows = [shard(part, replace(layout, embedding=0), rank) for part in each.parameters]
                    yield each.piece(file, "output.weight", rows, 1, replica=True)

    def check_target(self, model: Model, layout: Layout) -> None:
        """Check that params.json can express the configuration."""
        _params(model)

    def create(
        self, folder: Path, shapes: Shapes, model: Model, layout: Layout
    ) -> dict[tuple[str, str], Stored]:
        """Write files whose data is a hole, and return their tensors."""
        write_file(folder / "params.json", json.dumps(_params(model)).encode())
        return {
            (file, key): tensor
            for file, content in by_file(shapes).items()
            for key, tensor in torch_file.create(folder / file, content).items()
        }


def _rope(params: Config, vocabulary: int) -> Rope:
    """Return the rotary position embeddings of a params.json; its scaling is that of Meta's own code."""
    theta = _number(params, "rope_theta", 500_000.0 if vocabulary >= _LLAMA3 else 10_000.0)
    if not params.get("use_scaled_rope"):
        return Rope(theta)
    scaling = dict(_SCALING)
    for name in "factor", "high_freq_factor":  # entries of LLaMA 4
        key = "rope_scaling_factor" if name == "factor" else f"rope_{name}"
        scaling[name] = _number(params, key, scaling[name])
    return Rope(theta, "llama3", scaling)


def _number(params: Config, key: str, default: float) -> float:
    value = params.get(key) or default
    try:
        return float(value)
    except (TypeError, ValueError):
        raise CheckpointError(f"params.json: {key} {value!r} is not a number") from None


def _config(folder: Path, params: Config) -> Config:
    """Return the configuration of Hugging Face from params.json and the shapes in the first file."""
    try:
        hidden, heads = params["dim"], params["n_heads"]
        first = torch_file.read(min(folder.glob("consolidated.*.pth")))[0]
        number = len(list(folder.glob("consolidated.*.pth")))
        vocabulary = first["output.weight"].shape[0] * number
        size = first["layers.0.feed_forward.w1.weight"].shape[0] * number
        found = _rope(params, vocabulary)
        config = {
            "model_type": "mistral" if params.get("sliding_window") else "llama",
            "architectures": ["MistralForCausalLM" if params.get("sliding_window") else "LlamaForCausalLM"],
            "hidden_size": hidden,
            "intermediate_size": size,
            "num_hidden_layers": params["n_layers"],
            "num_attention_heads": heads,
            "num_key_value_heads": params.get("n_kv_heads") or heads,
            "vocab_size": vocabulary,
            "rms_norm_eps": params.get("norm_eps", 1e-5),
            "rope_theta": found.theta,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
        }
    except KeyError as error:
        raise CheckpointError(f"{folder}: params.json or the first file lacks {error}") from None
    for key in "head_dim", "sliding_window":
        if params.get(key):
            config[key] = params[key]
    if found.kind != "default":
        config["rope_scaling"] = {"rope_type": found.kind, **found.scaling}
    if length := _length(found, vocabulary):
        config["max_position_embeddings"] = length
    return config


def _length(found: Rope, vocabulary: int) -> int:
    """Return the longest sequence of Meta's releases, which params.json lacks; 0 for the default of transformers."""
    if found.scaling:
        return 131_072
    if vocabulary >= _LLAMA3:
        return 8192
    return 16_384 if found.theta > 10_000 else 0


def _params(model: Model) -> dict[str, Any]:
    """Return the content of params.json.

    Raises:
        CheckpointError: it cannot express the configuration.
    """
    config = model.config
    found = rope(config)
    if found.partial != 1 or (
        found.kind != "default" and not (found.kind == "llama3" and found.has(**_SCALING))
    ):
        values = ", ".join(f"{name} {value:g}" for name, value in _SCALING.items())
        raise CheckpointError(
            f"params.json of Meta cannot express {found}, only llama3 with {values}; convert to another format"
        )
    if (activation := config.get("hidden_act", "silu")) != "silu":
        raise CheckpointError(
            f"params.json of Meta cannot express hidden_act {activation}, only silu; convert to another format"
        )
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    params = {
        "dim": hidden,
        "n_layers": model.layers,
        "n_heads": heads,
        "n_kv_heads": model.groups,
        "vocab_size": config["vocab_size"],
        "norm_eps": config.get("rms_norm_eps", 1e-6),
        "rope_theta": found.theta,
        **_feed_forward(hidden, config["intermediate_size"]),
    }
    if found.kind == "llama3":
        params["use_scaled_rope"] = True
    if head_size(config) * heads != hidden:
        params["head_dim"] = head_size(config)
    if window := sliding_window(config):
        params["sliding_window"] = window
    return params


def _feed_forward(hidden: int, size: int) -> dict[str, Any]:
    """Return the entries from which Meta's code computes the intermediate size."""
    base, multiple = int(2 * 4 * hidden / 3), math.gcd(size, 256)
    for each in (256, multiple):
        if -(-base // each) * each == size:
            return {"multiple_of": each}
    # int(factor * base) is the size itself whatever the rounding, so that nothing is left to round up
    return {"multiple_of": multiple, "ffn_dim_multiplier": (size + 0.5) / base}


FORMATS = (Meta(),)
