"""MindSpore with MindFormers' names: rank_X/*.ckpt or *.safetensors, and strategy files where ranks have slices."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from math import prod
from pathlib import Path
from types import ModuleType

import torch

from isthmus_common.files import make_folder
from isthmus_formats.checkpoint import strategy as strategies
from isthmus_formats.checkpoint.architectures import Model
from isthmus_formats.checkpoint.containers import mindspore_file, safetensors_file
from isthmus_formats.checkpoint.containers.file_tensors import Assembled, Readable, Stored, Unsupported
from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.formats.base import Format, Key, Options, Shapes, Tensors, by_file
from isthmus_formats.checkpoint.formats.megatron import check
from isthmus_formats.checkpoint.layout import Bounds, Layout, Piece, Slice, places, whole_slice
from isthmus_formats.checkpoint.name_tables import Fused, Rule, fuse_by_table, table
from isthmus_formats.checkpoint.strategy import Item, Strategy

_LEGACY = """
model.tok_embeddings.embedding_weight = embedding.weight
model.layers.{layer}.attention_norm.weight = input_norm.weight
model.layers.{layer}.attention_norm.weight = latent_input_norm.weight
model.layers.{layer}.attention.wq.* = attention.q.*
model.layers.{layer}.attention.wk.* = attention.k.*
model.layers.{layer}.attention.wv.* = attention.v.*
model.layers.{layer}.attention.wo.* = attention.o.*
model.layers.{layer}.attention.q_proj.weight = latent.q.weight
model.layers.{layer}.attention.q2l_proj.* = latent.q_down.*
model.layers.{layer}.attention.lq_norm.weight = latent.q_norm.weight
model.layers.{layer}.attention.l2q_proj.weight = latent.q_up.weight
model.layers.{layer}.attention.kv2l.* = latent.kv_down.*
model.layers.{layer}.attention.lkv_norm.weight = latent.kv_norm.weight
model.layers.{layer}.attention.lkv2kv.weight = latent.kv_up.weight
model.layers.{layer}.ffn_norm.weight = mlp_norm.weight
model.layers.{layer}.ffn_norm.weight = moe_norm.weight
model.layers.{layer}.feed_forward.w1.* = mlp.gate.*
model.layers.{layer}.feed_forward.w3.* = mlp.up.*
model.layers.{layer}.feed_forward.w2.* = mlp.down.*
model.layers.{layer}.feed_forward.router.dense.weight = router.weight
model.layers.{layer}.feed_forward.router.router.topk_bias = router.bias
model.layers.{layer}.feed_forward.ffn.w1.weight = {experts}.gate.weight | stacked
model.layers.{layer}.feed_forward.ffn.w3.weight = {experts}.up.weight | stacked
model.layers.{layer}.feed_forward.ffn.w2.weight = {experts}.down.weight | stacked
model.layers.{layer}.feed_forward.shared_experts.w1.weight = shared.gate.weight
model.layers.{layer}.feed_forward.shared_experts.w3.weight = shared.up.weight
model.layers.{layer}.feed_forward.shared_experts.w2.weight = shared.down.weight
model.norm_out.weight = norm.weight
lm_head.weight = output.weight
"""
_CONCATENATED = """
model.layers.{layer}.attention.w_qkv.* = attention.q.* attention.k.* attention.v.* | grouped
model.layers.{layer}.feed_forward.w_gate_hidden.* = mlp.gate.* mlp.up.* | rows
"""
_MCORE = """
embedding.word_embeddings.weight = embedding.weight
decoder.layers.{layer}.input_layernorm.weight = input_norm.weight
decoder.layers.{layer}.input_layernorm.weight = latent_input_norm.weight
decoder.layers.{layer}.self_attention.linear_q.* = attention.q.*
decoder.layers.{layer}.self_attention.linear_k.* = attention.k.*
decoder.layers.{layer}.self_attention.linear_v.* = attention.v.*
decoder.layers.{layer}.self_attention.linear_proj.* = attention.o.*
decoder.layers.{layer}.self_attention.q_layernorm.weight = attention.q_norm.weight
decoder.layers.{layer}.self_attention.k_layernorm.weight = attention.k_norm.weight
decoder.layers.{layer}.self_attention.linear_q_proj.weight = latent.q.weight
decoder.layers.{layer}.self_attention.linear_q_down_proj.* = latent.q_down.*
decoder.layers.{layer}.self_attention.q_layernorm.weight = latent.q_norm.weight
decoder.layers.{layer}.self_attention.linear_q_up_proj.weight = latent.q_up.weight
decoder.layers.{layer}.self_attention.linear_kv_down_proj.* = latent.kv_down.*
decoder.layers.{layer}.self_attention.kv_layernorm.weight = latent.kv_norm.weight
decoder.layers.{layer}.self_attention.linear_kv_up_proj.weight = latent.kv_up.weight
decoder.layers.{layer}.pre_mlp_layernorm.weight = mlp_norm.weight
decoder.layers.{layer}.pre_mlp_layernorm.weight = moe_norm.weight
decoder.layers.{layer}.mlp.gating.* = mlp.gate.*
decoder.layers.{layer}.mlp.linear_fc1.* = mlp.up.*
decoder.layers.{layer}.mlp.linear_fc2.* = mlp.down.*
decoder.layers.{layer}.mlp.router.weight.weight = router.weight
decoder.layers.{layer}.mlp.router.expert_bias = router.bias
decoder.layers.{layer}.mlp.experts.{expert}.gating.weight = gate.weight
decoder.layers.{layer}.mlp.experts.{expert}.linear_fc1.weight = up.weight
decoder.layers.{layer}.mlp.experts.{expert}.linear_fc2.weight = down.weight
decoder.layers.{layer}.mlp.shared_experts.gating.weight = shared.gate.weight
decoder.layers.{layer}.mlp.shared_experts.linear_fc1.weight = shared.up.weight
decoder.layers.{layer}.mlp.shared_experts.linear_fc2.weight = shared.down.weight
decoder.final_layernorm.weight = norm.weight
output_layer.weight = output.weight
"""
_RANK = re.compile(r"rank_(\d+)$")


def rules(names: str, model: Model) -> tuple[Rule, ...]:
    """Return the table of a variant: ``""`` (legacy), ``concatenated`` (its qkv_concat) or ``mcore``."""
    text = _MCORE if names == "mcore" else _LEGACY
    if names == "concatenated":
        apart = r"attention\.w[qkv]\.|feed_forward\.w[13]\."
        text = "\n".join(line for line in text.splitlines() if not re.search(apart, line)) + _CONCATENATED
    if "kv_lora_rank" in model.config:  # DeepSeek's experts have a folder of their own
        text = re.sub(r"feed_forward\.(router|ffn)\.", r"feed_forward.routed_experts.\1.", text)
    return table(text)


class MindFormers(Format):
    """``rank_X/*.ckpt``, or ``*.ckpt`` for a whole model."""

    name = "mindformers"
    meaning = "MindSpore with MindFormers' names: rank_*/*.ckpt"
    sharded = ("tp", "pp", "vpp", "ep", "dp")
    names = ("", "concatenated", "mcore")
    suffix = ".ckpt"
    container: ModuleType = mindspore_file
    dtypes: Collection[torch.dtype] = mindspore_file.NAMES.keys()
    ignored = Format.ignored + (
        r"|^(adam_[mv]|accu_grads|moment[12s]?|momentum|exp_avg(_sq)?)\.|"
        r"^(epoch_num|step_num|global_step|loss_scale|scale_sense|learning_rate|current_iterator_step|"
        r"last_overflow_iterator_step|beta[12]_power)$|freqs_cis|rotary_embedding"
    )

    def matches(self, folder: Path) -> bool:
        """Return whether a folder is a checkpoint of this format."""
        return bool(_files(folder, self.suffix))

    def read(self, folder: Path, options: Options) -> Tensors:
        """Return the tensors of a checkpoint, without their data, put together if ranks have slices."""
        found = {rank: self._rank(paths) for rank, paths in _files(folder, self.suffix).items()}
        files = options.strategy or strategies.files(folder / "strategy")
        if not files:
            if len(found) > 1:
                raise CheckpointError(
                    f"{folder}: {len(found)} ranks; give their strategy files with --strategy"
                )
            return {("", name): tensor for tensors in found.values() for name, tensor in tensors.items()}
        merged = strategies.merge(files) if len(files) > 1 else strategies.read(files[0])
        return {("", name): tensor for name, tensor in _assemble(folder, found, merged, self.ignored).items()}

    def _rank(self, paths: list[Path]) -> dict[str, Stored | Unsupported]:
        tensors: dict[str, Stored | Unsupported] = {}
        for path in paths:
            for name, tensor in self.container.read(path).items():
                if name in tensors:
                    raise CheckpointError(
                        f"{tensors[name].path} and {path} both have {name}; remove the stale one"
                    )
                tensors[name] = tensor
        return tensors

    def layout(self, folder: Path, tensors: Tensors, model: Model) -> Layout:
        """Return the layout that the files have."""
        keys = {key for _, key in tensors}
        mcore = "embedding.word_embeddings.weight" in keys
        concatenated = any(re.search(r"\.(w_qkv|w_gate_hidden)\.", key) for key in keys)
        return Layout(names="mcore" if mcore else "concatenated" if concatenated else "")

    def pieces(self, model: Model, layout: Layout) -> Iterator[Piece]:
        """Return the tensors of a checkpoint of a model: of each rank, or if it is whole, by name alone."""
        check(model, layout)
        for each in fuse_by_table(rules(layout.names, model), model.parameters, model.type, self.name):
            parts = [(whole_slice(part), 0) for part in each.parameters]
            piece = each.piece("", each.key(), parts, model.groups, interleaved=layout.interleaved)
            if layout == Layout(names=layout.names, interleaved=layout.interleaved):
                yield piece
                continue
            item = _item(each, piece, layout)
            for stage in _stages(each, model, layout):
                for rank in range(layout.dp * layout.tp):
                    number = stage * layout.dp * layout.tp + rank
                    yield _slice_of_rank(
                        each, piece, item, rank, f"rank_{number}/checkpoint_{number}{self.suffix}", layout
                    )

    def assign_files(self, pieces: list[Piece], shapes: Shapes, shard_size: int) -> list[Piece]:
        """Return the pieces with their files."""
        return [replace(each, file=each.file or f"rank_0/checkpoint_0{self.suffix}") for each in pieces]

    def create(self, folder: Path, shapes: Shapes, model: Model, layout: Layout) -> dict[Key, Stored]:
        """Write files whose data is a hole, and strategy files; return the tensors."""
        tensors = {}
        for file, content in by_file(shapes).items():
            make_folder((folder / file).parent)
            for key, tensor in self.container.create(folder / file, content).items():
                tensors[file, key] = tensor
        if layout.pp * layout.dp * layout.tp > 1:
            make_folder(folder / "strategy")
            for stage in range(layout.pp):
                path = folder / "strategy" / f"ckpt_strategy_rank_{stage * layout.dp * layout.tp}.ckpt"
                strategies.write(path, self._strategy(model, layout, stage))
        return tensors

    def _strategy(self, model: Model, layout: Layout, stage: int) -> Strategy:
        items = {}
        for each in fuse_by_table(rules(layout.names, model), model.parameters, model.type, self.name):
            if stage in _stages(each, model, layout):
                piece = each.piece(
                    "", each.key(), [(whole_slice(part), 0) for part in each.parameters], model.groups
                )
                items[each.key()] = _item(each, piece, layout)
        return Strategy(stage, items, {f"isthmus-{stage}": (stage, ())})


class MindFormersSafetensors(MindFormers):
    """``rank_X/*.safetensors``."""

    name = "mindformers-safetensors"
    meaning = "MindSpore with MindFormers' names: rank_*/*.safetensors"
    suffix = ".safetensors"
    container = safetensors_file
    dtypes = Format.dtypes

    def matches(self, folder: Path) -> bool:
        """Return whether a folder is a checkpoint of this format."""
        return any(folder.glob("rank_*/*.safetensors"))


def _files(folder: Path, suffix: str) -> dict[int, list[Path]]:
    """Return the files of each rank; of a folder without ranks, all its files as those of rank 0."""
    ranked: dict[int, list[Path]] = {}
    for path in sorted(folder.glob(f"rank_*/*{suffix}")):
        if match := _RANK.match(path.parent.name):
            ranked.setdefault(int(match[1]), []).append(path)
    plain = sorted(folder.glob(f"*{suffix}"))
    return ranked or ({0: plain} if plain else {})


def _assemble(
    folder: Path, ranks: dict[int, dict[str, Stored | Unsupported]], strategy: Strategy, ignored: str
) -> dict[str, Readable]:
    """Return whole tensors from the slices of the ranks."""
    found: dict[str, Readable] = {}
    for stage, items in strategies.by_stage(strategy).items():
        for name, item in items.items():
            if re.search(ignored, name) or name in found:
                continue
            parts: dict[Bounds, Stored] = {}
            for rank in range(prod(item.devices)):
                number = stage * prod(item.devices) + rank
                if number not in ranks:
                    raise CheckpointError(f"{folder}: no file of rank {number}; copy all ranks")
                if name not in ranks[number]:
                    raise CheckpointError(
                        f"{folder}: rank {number} lacks {name}, which the strategy gives it"
                    )
                tensor, position = ranks[number][name], item.position(rank)
                if isinstance(tensor, Unsupported):
                    found[name] = tensor
                    break
                if len(tensor.shape) != len(position):
                    raise CheckpointError(
                        f"{folder}: {name} of rank {number} has the shape {tensor.shape}, but its strategy has "
                        f"{len(position)} dimensions"
                    )
                sides = zip(position, tensor.shape, strict=True)
                parts.setdefault(
                    tuple((index * side, (index + 1) * side) for (index, _), side in sides), tensor
                )
            else:
                kinds = {(part.dtype, part.shape) for part in parts.values()}
                if len(kinds) > 1:
                    raise CheckpointError(f"{folder}: the ranks disagree on data type or shape of {name}")
                shape = tuple(side * count for side, (_, count) in zip(tensor.shape, position, strict=True))
                found[name] = Assembled(name, shape, tensor.dtype, tuple(parts.items()))
    return found


def _stages(each: Fused, model: Model, layout: Layout) -> list[int]:
    """Return the pipeline stages that have a tensor."""
    if each.layer is not None:
        return [places(model.layers, layout)[each.layer].stage]
    if each.parameters[0].role == "embedding.weight":
        return sorted({0, layout.pp - 1}) if model.is_tied else [0]
    return [layout.pp - 1]


def _item(each: Fused, piece: Piece, layout: Layout) -> Item:
    """Return the layout of a stored tensor on the devices of a stage, a matrix of data times tensor parallelism."""
    parameter = each.parameters[0]
    shape = piece.shape
    axes: list[tuple[int, ...]] = [()] * len(shape)
    devices: tuple[int, ...] = (layout.dp, layout.tp)
    if parameter.shard is not None and layout.tp > 1:
        axes[parameter.shard + bool(piece.stack)] = (0,)
    if piece.stack and layout.ep > 1:
        if layout.dp % layout.ep:
            raise CheckpointError(f"--ep {layout.ep}: must divide the data-parallel ranks, --dp {layout.dp}")
        devices, axes[0] = (layout.dp // layout.ep, layout.ep, layout.tp), (1,)
    item = Item(devices, tuple(axes))
    if devices[0] > 1:  # the optimizer's parallelism splits over all devices that have the same slice
        same = devices[:1] if any(axes) else devices
        split = replace(item, step=prod(devices[len(same) :]), size=prod(same))
        item = item if shape[0] % split.position(0)[0][1] else split
    if uneven := [size for size, (_, count) in zip(shape, item.position(0), strict=True) if size % count]:
        raise CheckpointError(
            f"{each.key()}: {uneven[0]} rows, columns or experts cannot be split so; give sizes that divide it"
        )
    return item


def _slice_of_rank(each: Fused, piece: Piece, item: Item, rank: int, file: str, layout: Layout) -> Piece:
    """Return the piece of a rank: a rectangle of the stored tensor, whatever parameters its rows are fused from."""
    position = item.position(rank)
    parts, blocks = piece.slices, piece.blocks
    cut: tuple[int, ...] = ()
    if piece.stack:
        (index, count), *position = position
        size = len(parts) // count
        parts = parts[index * size : (index + 1) * size]
        rows = [_part_bounds(part.shape[0], position[0]) for part in parts]
    else:
        rows, blocks, cut = _cut_rows(piece, position[0])
    slices = []
    for part, bounds in zip(parts, rows, strict=True):
        rest = (_part_bounds(length, each) for length, each in zip(part.shape[1:], position[1:], strict=True))
        slices.append((Slice(part.parameter, (bounds, *rest)), 0))
    found = each.piece(file, each.key(), slices, blocks, interleaved=layout.interleaved)
    return replace(found, blocks=blocks, cut=cut)


def _part_bounds(length: int, position: tuple[int, int]) -> tuple[int, int]:
    """Return first and last + 1 index of an even part."""
    index, count = position
    return length // count * index, length // count * (index + 1)


def _cut_rows(piece: Piece, position: tuple[int, int]) -> tuple[list[tuple[int, int]], int, tuple[int, ...]]:
    """Return the rows of each parameter that a range of the fused rows needs, their blocks, and the cut within them.

    The rows of a parameter are those of whole blocks, and of whole heads where their rows are reordered.
    """
    lengths = [part.shape[0] for part in piece.slices]
    blocks = piece.blocks
    if len(lengths) == 1:
        rotary = piece.slices[0].parameter.rotary if piece.interleaved else 0
        blocks = lengths[0] // (rotary or 1)
    block = sum(lengths) // blocks
    start, stop = _part_bounds(sum(lengths), position)
    first, last = start // block, -(-stop // block)
    rows = [(length // blocks * first, length // blocks * last) for length in lengths]
    cut = (start - block * first, stop - block * first)
    return rows, last - first, () if cut == (0, block * (last - first)) else cut


FORMATS = (MindFormers(), MindFormersSafetensors())
