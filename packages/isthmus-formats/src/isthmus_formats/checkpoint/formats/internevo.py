"""InternEvo: model_tpX_ppY.pt, layers numbered within a stage."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from isthmus_formats.checkpoint.architectures import Model
from isthmus_formats.checkpoint.architectures.decoder import sliding_window
from isthmus_formats.checkpoint.containers import torch_file
from isthmus_formats.checkpoint.containers.file_tensors import Stored
from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.formats import meta
from isthmus_formats.checkpoint.formats.base import Format, Options, Shapes, Tensors, by_file, ranks
from isthmus_formats.checkpoint.formats.megatron import check
from isthmus_formats.checkpoint.layout import Layout, Piece, Place, places, shard
from isthmus_formats.checkpoint.name_tables import Rule, fuse_by_table, table
from isthmus_formats.checkpoint.rope import rope

_FUSED = table("layers.{layer}.attention.wqkv.* = attention.q.* attention.k.* attention.v.* | grouped")
_APART = table("layers.{layer}.attention.wo.bias = attention.o.bias")


def rules(names: str) -> tuple[Rule, ...]:
    """Return the table of InternLM2, or with the names ``llama`` that of LLaMA."""
    apart = tuple(each for each in meta.RULES if not re.search(r"attention\.w[qkv]\.", each.stored))
    return (meta.RULES if names == "llama" else apart + _FUSED) + _APART


class InternEvo(Format):
    """``model_tp0_pp0.pt`` and so on."""

    name = "internevo"
    meaning = "InternEvo: model_tp*_pp*.pt"
    whole = False
    sharded = ("tp", "pp")
    names = ("", "llama")

    def matches(self, folder: Path) -> bool:
        """Return whether a folder is a checkpoint of this format."""
        return any(folder.glob("model_tp*_pp*.pt"))

    def read(self, folder: Path, options: Options) -> Tensors:
        """Return the tensors of a checkpoint, without their data."""
        paths: dict[tuple[int, ...], Path] = {}
        for path in sorted(folder.glob("model_tp*_pp*.pt")):
            if not (match := re.fullmatch(r"model_tp(\d+)_pp(\d+)\.pt", path.name)):
                raise CheckpointError(
                    f"{path}: only checkpoints of tensor and pipeline parallelism are supported"
                )
            paths[int(match[1]), int(match[2])] = path
        ranks(paths, "tensor, pipeline")
        return {
            (path.name, key.removeprefix("model.")): tensor
            for path in paths.values()
            for key, tensor in torch_file.read(path, allow_pickle=options.allow_pickle)[0].items()
        }

    def layout(self, folder: Path, tensors: Tensors, model: Model) -> Layout:
        """Return the layout that the files have."""
        tp, pp = (max(int(re.findall(r"\d+", file)[index]) for file, _ in tensors) + 1 for index in range(2))
        layers = [0] * pp
        for file, key in tensors:
            if match := re.match(r"layers\.(\d+)\.", key):
                stage = int(re.findall(r"\d+", file)[1])
                layers[stage] = max(layers[stage], int(match[1]) + 1)
        by_columns = (
            tensors["model_tp0_pp0.pt", "tok_embeddings.weight"].shape[0] == model.config["vocab_size"]
        )
        names = "llama" if any(key.endswith("attention.wq.weight") for _, key in tensors) else ""
        config = folder / "model_config.pt"
        adapted = torch_file.read(config)[1].get("adapt_hf", True) if config.is_file() else True
        return Layout(
            tp, pp, embedding=int(by_columns), interleaved=not adapted, names=names, stages=tuple(layers)
        )

    def default(self, model: Model) -> Layout:
        """Return the layout of a checkpoint to write."""
        return Layout(embedding=1)

    def pieces(self, model: Model, layout: Layout) -> Iterator[Piece]:
        """Return the tensors of a checkpoint of a model."""
        check(model, layout)
        where = places(model.layers, layout)
        if 0 in layout.stages:
            raise CheckpointError(
                f"--stages {','.join(map(str, layout.stages))}: InternEvo needs a layer in each stage"
            )
        for each in fuse_by_table(rules(layout.names), model.parameters, model.type, self.name):
            start = each.parameters[0].role == "embedding.weight"
            place = Place(0 if start else layout.pp - 1, 0, 0) if each.layer is None else where[each.layer]
            for rank in range(layout.tp):
                slices = [shard(part, layout, rank) for part in each.parameters]
                copy = rank > 0 and slices[0][0].shape == each.parameters[0].shape
                yield each.piece(
                    f"model_tp{rank}_pp{place.stage}.pt",
                    each.key(place.index),
                    slices,
                    max(model.groups // layout.tp, 1),
                    interleaved=layout.interleaved,
                    replica=copy,
                )

    def check_target(self, model: Model, layout: Layout) -> None:
        """Check that InternEvo's configuration can express that of the model."""
        _configuration(model)

    def create(
        self, folder: Path, shapes: Shapes, model: Model, layout: Layout
    ) -> dict[tuple[str, str], Stored]:
        """Write files whose data is a hole, and return their tensors."""
        described = {
            **_configuration(model),
            "adapt_hf": not layout.interleaved,
            "embed_split_hidden": layout.embedding == 1,
        }
        torch.save(described, folder / "model_config.pt")
        return {
            (file, key): tensor
            for file, content in by_file(shapes).items()
            for key, tensor in torch_file.create(folder / file, content).items()
        }


def _configuration(model: Model) -> dict[str, Any]:
    """Return the entries of InternEvo's model configuration.

    Raises:
        CheckpointError: it cannot express that of the model.
    """
    config = model.config
    found, activation = rope(config), config.get("hidden_act", "silu")
    if found.kind not in {"default", "dynamic"} or found.partial != 1:
        raise CheckpointError(f"InternEvo has no entries for {found}; convert to another format")
    if activation != "silu":
        raise CheckpointError(
            f"InternEvo has no entry for the activation {activation}; convert to another format"
        )
    hidden, size = config["hidden_size"], config["intermediate_size"]
    ratio = size / hidden
    described = {
        "num_layers": model.layers,
        "hidden_size": hidden,
        "vocab_size": config["vocab_size"],
        "num_attention_heads": config["num_attention_heads"],
        "num_kv_attention_heads": model.groups,
        # InternEvo rounds int(hidden_size * mlp_ratio) up to a multiple
        "mlp_ratio": ratio if int(hidden * ratio) == size else math.nextafter(ratio, math.inf),
        "multiple_of": math.gcd(size, 256),
        "no_bias": not any(each.role.endswith("bias") for each in model.parameters),
        "norm_type": "rmsnorm",
        "layer_norm_epsilon": config.get("rms_norm_eps", 1e-6),
        "rope_base": int(found.theta) if found.theta.is_integer() else found.theta,
        "use_dynamic_ntk_rope": found.kind == "dynamic",
    }
    if length := config.get("max_position_embeddings"):
        described["max_position_embeddings"] = length
    if window := sliding_window(config):
        described |= {"use_sliding_window": True, "sliding_window": window}
    return described


FORMATS = (InternEvo(),)
