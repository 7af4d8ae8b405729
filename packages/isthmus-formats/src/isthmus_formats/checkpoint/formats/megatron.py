"""Megatron's format ``torch``: a file for each rank of tensor, pipeline and expert parallelism."""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from isthmus_common.files import make_folder, write_file
from isthmus_formats.checkpoint.architectures import Model
from isthmus_formats.checkpoint.containers import torch_file
from isthmus_formats.checkpoint.containers.file_tensors import Stored
from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.formats.base import Format, Options, Shapes, Tensors, by_file, ranks
from isthmus_formats.checkpoint.formats.megatron_arguments import arguments, check_saved, hint
from isthmus_formats.checkpoint.layout import Layout, Piece, Place, places, shard
from isthmus_formats.checkpoint.name_tables import Rule, fuse_by_table, table

_TRANSFORMER_ENGINE = """
embedding.word_embeddings.weight = embedding.weight
embedding.position_embeddings.weight = position.weight
decoder.layers.{layer}.self_attention.linear_qkv.layer_norm_* = input_norm.*
decoder.layers.{layer}.input_layernorm.weight = latent_input_norm.weight
decoder.layers.{layer}.self_attention.linear_qkv.* = attention.q.* attention.k.* attention.v.* | grouped
decoder.layers.{layer}.self_attention.linear_proj.* = attention.o.*
decoder.layers.{layer}.self_attention.q_layernorm.weight = attention.q_norm.weight
decoder.layers.{layer}.self_attention.k_layernorm.weight = attention.k_norm.weight
decoder.layers.{layer}.self_attention.linear_q_proj.weight = latent.q.weight
decoder.layers.{layer}.self_attention.linear_q_down_proj.* = latent.q_down.*
decoder.layers.{layer}.self_attention.linear_q_up_proj.layer_norm_weight = latent.q_norm.weight
decoder.layers.{layer}.self_attention.linear_q_up_proj.weight = latent.q_up.weight
decoder.layers.{layer}.self_attention.linear_kv_down_proj.* = latent.kv_down.*
decoder.layers.{layer}.self_attention.linear_kv_up_proj.layer_norm_weight = latent.kv_norm.weight
decoder.layers.{layer}.self_attention.linear_kv_up_proj.weight = latent.kv_up.weight
decoder.layers.{layer}.mlp.linear_fc1.layer_norm_* = mlp_norm.*
decoder.layers.{layer}.pre_mlp_layernorm.weight = moe_norm.weight
decoder.layers.{layer}.mlp.linear_fc1.* = mlp.gate.* mlp.up.*
decoder.layers.{layer}.mlp.linear_fc1.* = mlp.plain.*
decoder.layers.{layer}.mlp.linear_fc2.* = mlp.down.*
decoder.layers.{layer}.mlp.router.weight = router.weight
decoder.layers.{layer}.mlp.router.expert_bias = router.bias
decoder.layers.{layer}.mlp.experts.local_experts.{expert}.linear_fc1.weight = gate.weight up.weight
decoder.layers.{layer}.mlp.experts.local_experts.{expert}.linear_fc2.weight = down.weight
decoder.layers.{layer}.mlp.shared_experts.linear_fc1.weight = shared.gate.weight shared.up.weight
decoder.layers.{layer}.mlp.shared_experts.linear_fc2.weight = shared.down.weight
decoder.layers.{layer}.mlp.shared_experts.gate_weight = shared_gate.weight
decoder.final_layernorm.* = norm.*
output_layer.weight = output.weight
"""
_LOCAL = {  # the norms that Transformer Engine fuses into the next linear layer
    "self_attention.linear_qkv.layer_norm_*": "input_layernorm.*",
    "self_attention.linear_q_up_proj.layer_norm_weight": "self_attention.q_layernorm.weight",
    "self_attention.linear_kv_up_proj.layer_norm_weight": "self_attention.kv_layernorm.weight",
    "mlp.linear_fc1.layer_norm_*": "pre_mlp_layernorm.*",
}
_FILE = re.compile(r"mp_rank_(\d\d)(?:_(\d\d\d))?(?:_(\d\d\d))?/model(?:_optim)?_rng\.pt$")


def rules(names: str) -> tuple[Rule, ...]:
    """Return the table of a variant: ``""`` with Transformer Engine, ``local`` without, ``grouped`` experts of it."""
    text = _TRANSFORMER_ENGINE
    if names == "local":
        for fused_name, own in _LOCAL.items():
            text = text.replace(fused_name, own)
    if names == "grouped":
        text = re.sub(r"local_experts\.\{expert\}\.(linear_fc.\.weight)", r"\1{expert}", text)
    return table(text)


class Megatron(Format):
    """``release/mp_rank_XX[_PPP][_EEE]/model_optim_rng.pt``."""

    name = "megatron"
    meaning = "Megatron, --ckpt-format torch"
    whole = False
    sharded = ("tp", "pp", "vpp", "ep")
    names = ("", "local", "grouped")

    def matches(self, folder: Path) -> bool:
        """Return whether a folder is a checkpoint of this format."""
        return any(newest_folder(folder).glob("mp_rank_*/model*_rng.pt"))

    def read(self, folder: Path, options: Options) -> Tensors:
        """Return the tensors of a checkpoint, without their data."""
        tensors: Tensors = {}
        found: dict[tuple[int, ...], Path] = {}
        for path in sorted(newest_folder(folder).glob("mp_rank_*/model*_rng.pt")):
            if not (match := _FILE.search(path.as_posix())):
                raise CheckpointError(f"{path}: not the name of a rank; expected mp_rank_00_000_000")
            rank = tuple(int(each) for each in match.groups() if each is not None)
            if (found and len(next(iter(found))) != len(rank)) or rank in found:
                raise CheckpointError(
                    f"{path} and {next(iter(found.values()))} claim ranks of different sizes; remove the stale one"
                )
            found[rank] = path
            for key, tensor in torch_file.read(path, allow_pickle=options.allow_pickle)[0].items():
                if key.startswith("model"):
                    tensors[path.parent.name, key] = tensor
        ranks(found, "tensor, pipeline, expert")
        return tensors

    def layout(self, folder: Path, tensors: Tensors, model: Model) -> Layout:
        """Return the layout that the files have."""
        files = sorted({file for file, _ in tensors})
        sizes = [
            max(int(file.split("_")[index]) for file in files) + 1
            for index in range(2, files[0].count("_") + 1)
        ]
        embedding = [each for each in tensors if each[1].endswith("embedding.word_embeddings.weight")]
        if len(sizes) == 2 and len({file for file, _ in embedding}) == len(files):
            sizes.insert(1, 1)  # the first stage only has an embedding, so these ranks are experts
        tp, pp, ep = (*sizes, 1, 1)[:3]
        keys = {key for _, key in tensors}
        vpp = len({key.partition("/")[0] for key in keys})
        names = "local" if not any(".layer_norm_" in key for key in keys) else ""
        if any(re.search(r"mlp\.experts\.linear_fc1\.weight\d", key) for key in keys):
            names = "grouped"
        rows = tensors[embedding[0]].shape[0] * tp if embedding else 0
        found = Layout(tp, pp, vpp, ep, vocabulary=rows, names=names, stages=_stages(tensors, files, pp, vpp))
        return with_saved_arguments(next(newest_folder(folder).glob("mp_rank_*/model*_rng.pt")), model, found)

    def default(self, model: Model) -> Layout:
        """Return the layout of a checkpoint to write."""
        return Layout(vocabulary=model.vocabulary)

    def pieces(self, model: Model, layout: Layout) -> Iterator[Piece]:
        """Return the tensors of a checkpoint of a model."""
        where = places(model.layers, layout)
        last = Place(layout.pp - 1, layout.vpp - 1, 0)
        local = max(model.experts // layout.ep, 1)
        check(model, layout)
        for each in fuse_by_table(rules(layout.names), model.parameters, model.type, self.name):
            role = each.parameters[0].role
            start = Place(0, 0, 0) if role in {"embedding.weight", "position.weight"} else last
            place = start if each.layer is None else where[each.layer]
            owners = range(layout.ep) if each.expert is None else [each.expert // local]
            for expert_rank in owners:
                for rank in range(layout.tp):
                    slices = [shard(part, layout, rank) for part in each.parameters]
                    unsplit = slices[0][0].shape == each.parameters[0].shape
                    copy = expert_rank > owners[0] or (rank > 0 and unsplit)
                    file = _file(layout, rank, place.stage, expert_rank)
                    prefix = f"model{place.virtual if layout.vpp > 1 else ''}/"
                    key = each.key(place.index, each.expert % local if each.expert is not None else None)
                    groups = max(model.groups // layout.tp, 1)
                    yield each.piece(
                        file, prefix + key, slices, groups, interleaved=layout.interleaved, replica=copy
                    )
                    if role == "embedding.weight" and model.is_tied and layout.pp > 1:
                        file = _file(layout, rank, last.stage, expert_rank)
                        prefix = f"model{last.virtual if layout.vpp > 1 else ''}/"
                        yield each.piece(file, prefix + "output_layer.weight", slices, groups, replica=True)

    def check_target(self, model: Model, layout: Layout) -> None:
        """Check that Megatron has options for the configuration."""
        arguments(model, layout)

    def hint(self, model: Model, layout: Layout) -> str:
        """Return a message with the options that Megatron does not read from a checkpoint."""
        return hint(model, layout)

    def create(
        self, folder: Path, shapes: Shapes, model: Model, layout: Layout
    ) -> dict[tuple[str, str], Stored]:
        """Write files whose data is a hole, and return their tensors."""
        more = {"checkpoint_version": 3.0, "iteration": 0, "args": saved_arguments(shapes, model, layout)}
        parts = [f"model{each}" for each in range(layout.vpp)] if layout.vpp > 1 else ["model"]
        contents = by_file(shapes)
        tensors = {}
        for rank in itertools.product(range(layout.tp), range(layout.pp), range(layout.ep)):
            file = _file(layout, *rank)
            path = folder / "release" / file / "model_optim_rng.pt"
            make_folder(path.parent)
            empty: dict[str, object] = {part: {} for part in parts}  # a stage may have no tensors
            for key, tensor in torch_file.create(path, contents.get(file, {}), {**more, **empty}).items():
                tensors[file, key] = tensor
        write_file(folder / "latest_checkpointed_iteration.txt", b"release")
        return tensors


def with_saved_arguments(path: Path, model: Model, layout: Layout) -> Layout:
    """Return a layout with what a file's saved arguments add to it, after checking them against config.json."""
    try:
        content = torch_file.load(path)
    except CheckpointError:  # with objects that are only loaded with --allow-pickle
        return layout
    saved = content.get("args") if isinstance(content, dict) else None
    if not hasattr(saved, "__dict__"):
        return layout
    check_saved(saved, model, layout)
    return replace(layout, interleaved=bool(getattr(saved, "rotary_interleaved", False)))


def saved_arguments(shapes: Shapes, model: Model, layout: Layout) -> argparse.Namespace:
    """Return the arguments of a checkpoint to write."""
    dtypes = {dtype for dtype, shape in shapes.values() if len(shape) > 1}
    return arguments(model, layout, dtypes.pop() if len(dtypes) == 1 else None)


def check(model: Model, layout: Layout) -> None:
    """Check that heads and experts can be split.

    Raises:
        CheckpointError: they cannot.
    """
    heads = model.config.get("num_attention_heads", model.config.get("n_head"))
    if heads % layout.tp:
        raise CheckpointError(
            f"{heads} attention heads cannot be split over --tp {layout.tp}; give a divisor of {heads}"
        )
    if model.groups % layout.tp:
        raise CheckpointError(
            f"{model.groups} key-value heads cannot be split over --tp {layout.tp}; give a divisor of "
            f"{model.groups}"
        )
    if layout.ep > 1 and not model.experts:
        raise CheckpointError(f"--ep {layout.ep}: the model has no experts; leave it out")
    if model.experts and model.experts % layout.ep:
        raise CheckpointError(
            f"{model.experts} experts cannot be split over --ep {layout.ep}; give a divisor of {model.experts}"
        )


def newest_folder(folder: Path) -> Path:
    """Return the folder of the newest iteration, or the folder itself."""
    latest = folder / "latest_checkpointed_iteration.txt"
    if not latest.is_file():
        return folder
    name = latest.read_text(errors="replace").strip()
    return folder / (name if name == "release" else f"iter_{int(name):07}" if name.isdigit() else "")


def _file(layout: Layout, tensor: int, stage: int, expert: int) -> str:
    name = f"mp_rank_{tensor:02}"
    name += f"_{stage:03}" if layout.pp > 1 else ""
    return name + (f"_{expert:03}" if layout.ep > 1 else "")


def _stages(tensors: Tensors, files: list[str], pp: int, vpp: int) -> tuple[int, ...]:
    """Return the number of layers of each virtual stage."""
    layers: dict[tuple[int, int], int] = {}
    for file, key in tensors:
        if match := re.match(r"model(\d*)/decoder\.layers\.(\d+)\.", key):
            at = (int(match[1] or 0), int(file.split("_")[3]) if pp > 1 else 0)
            layers[at] = max(layers.get(at, 0), int(match[2]) + 1)
    return tuple(layers.get((virtual, stage), 0) for virtual in range(vpp) for stage in range(pp))


FORMATS = (Megatron(),)
