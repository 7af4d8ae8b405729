"""Meta's LLaMA files: consolidated.XX.pth for each tensor-parallel rank, params.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from isthmus._support.files import write_file
from isthmus.checkpoint.architectures import Config, Model
from isthmus.checkpoint.containers import torch_file
from isthmus.checkpoint.containers.stored import Stored
from isthmus.checkpoint.errors import CheckpointError
from isthmus.checkpoint.formats.base import Format, Options, Shapes, Tensors, by_file, ranks, read_json
from isthmus.checkpoint.formats.megatron import check
from isthmus.checkpoint.layout import Layout, Piece, shard
from isthmus.checkpoint.names import fused, table

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
        if (folder / "config.json").is_file() or not (folder / "params.json").is_file():
            return super().config(folder)
        params = read_json(folder / "params.json")
        try:
            hidden, heads = params["dim"], params["n_heads"]
            first = torch_file.read(min(folder.glob("consolidated.*.pth")))[0]
            number = len(list(folder.glob("consolidated.*.pth")))
            vocabulary, size = (
                first["output.weight"].shape[0],
                first["layers.0.feed_forward.w1.weight"].shape[0],
            )
            return {
                "model_type": "llama",
                "architectures": ["LlamaForCausalLM"],
                "hidden_size": hidden,
                "intermediate_size": size * number,
                "num_hidden_layers": params["n_layers"],
                "num_attention_heads": heads,
                "num_key_value_heads": params.get("n_kv_heads") or heads,
                "vocab_size": vocabulary * number,
                "rms_norm_eps": params.get("norm_eps", 1e-5),
                "rope_theta": params.get("rope_theta", 10000.0),
                "hidden_act": "silu",
                "tie_word_embeddings": False,
            }
        except KeyError as error:
            raise CheckpointError(f"{folder}: params.json or the first file lacks {error}") from None

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
        for each in fused(RULES, model, self.name):
            for rank in range(layout.tp):
                slices = [shard(part, layout, rank) for part in each.parameters]
                copy = rank > 0 and slices[0][0].shape == each.parameters[0].shape
                file = f"consolidated.{rank:02}.pth"
                yield each.piece(file, each.key(), slices, 1, interleaved=layout.interleaved, replica=copy)
                if model.tied and each.parameters[0].role == "embedding.weight":
                    rows = [shard(part, replace(layout, embedding=0), rank) for part in each.parameters]
                    yield each.piece(file, "output.weight", rows, 1, replica=True)

    def create(
        self, folder: Path, shapes: Shapes, model: Model, layout: Layout
    ) -> dict[tuple[str, str], Stored]:
        """Write files whose data is a hole, and return their tensors."""
        config = model.config
        params = {
            "dim": config["hidden_size"],
            "n_layers": model.layers,
            "n_heads": config["num_attention_heads"],
            "n_kv_heads": model.groups,
            "vocab_size": config["vocab_size"],
            "norm_eps": config.get("rms_norm_eps", 1e-5),
            "rope_theta": config.get("rope_theta", 10000.0),
        }
        write_file(folder / "params.json", json.dumps(params).encode())
        return {
            (file, key): tensor
            for file, content in by_file(shapes).items()
            for key, tensor in torch_file.create(folder / file, content).items()
        }


FORMATS = (Meta(),)
