"""DeepSpeed: flat partitions of ZeRO 1 to 3.

The float32 weights of the optimizer are read. Without an optimizer, as after ZeRO 0, the module's are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import torch

from isthmus_common.files import make_folder, write_file
from isthmus_formats.checkpoint.architectures import Model
from isthmus_formats.checkpoint.containers import torch_file
from isthmus_formats.checkpoint.containers.file_tensors import Readable, Stored
from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.formats.base import Key, Options, Shapes, Tensors, ranks
from isthmus_formats.checkpoint.formats.huggingface import HuggingFace
from isthmus_formats.checkpoint.layout import Layout, Piece

_MODEL = re.compile(r"(?:zero_pp_rank_(\d+)_)?mp_rank_(\d+)_model_states\.pt")
_OPTIMIZER = re.compile(r"(?:bf16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt")


@dataclass(frozen=True, slots=True)
class Flat:
    """A tensor from ranges of flat ones, one after the other."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    parts: tuple[Readable, ...]

    def read(self) -> torch.Tensor:
        """Return it; the last part may be padded."""
        return torch.cat([part.read().flatten() for part in self.parts])[
            : torch.Size(self.shape).numel()
        ].reshape(self.shape)


class DeepSpeed(HuggingFace):
    """``global_stepN/*_optim_states.pt``."""

    name = "deepspeed"
    meaning = "DeepSpeed: ZeRO 1 to 3; written as the module alone"

    def matches(self, folder: Path) -> bool:
        """Return whether a folder is a checkpoint of this format."""
        return any(_newest_folder(folder).glob("*_model_states.pt"))

    def read(self, folder: Path, options: Options) -> Tensors:
        """Return the tensors of a checkpoint, without their data."""
        step = _newest_folder(folder)
        models = _files(step, _MODEL, "_model_states.pt")
        tensors, content = torch_file.read(models[0], allow_pickle=options.allow_pickle)
        optimizers, state = _optimizers(step, options)
        module = {
            name.removeprefix("module/"): each for name, each in tensors.items() if name.startswith("module/")
        }
        if not optimizers:
            return {("", name): tensor for name, tensor in module.items()}
        shapes = _shapes(models[0], content)
        frozen = {name: tuple(shape) for name, shape in (content.get("frozen_param_shapes") or {}).items()}
        if "fp32_flat_groups/0" in optimizers[0]:
            found = _by_parameter(optimizers, shapes)
            if frozen and len(models) != len(optimizers):
                raise CheckpointError(
                    f"{step}: {len(models)} of {len(optimizers)} files *_model_states.pt; copy all ranks"
                )
            others = models[1:] if frozen else []
        else:
            found = _by_group(optimizers, shapes, state.get("param_alignment_paddings"))
            others = []
        ranked = [tensors, *(torch_file.read(path, allow_pickle=options.allow_pickle)[0] for path in others)]
        found |= {name: _frozen_parameter(name, shape, ranked, models) for name, shape in frozen.items()}
        shared = content.get("shared_params") or {}
        shared = dict(shared) if isinstance(shared, dict) else dict(map(tuple, shared))
        found |= {name: found[other] for name, other in shared.items() if other in found}
        for name, tensor in module.items():  # buffers, and frozen parameters of old versions
            if name not in found and tensor.shape and 0 not in tensor.shape:
                found[name] = tensor
        return {("", name): tensor for name, tensor in found.items()}

    def assign_files(self, pieces: list[Piece], shapes: Shapes, shard_size: int) -> list[Piece]:
        """Return the pieces with their files."""
        return [replace(piece, file="mp_rank_00_model_states.pt") for piece in pieces]

    def create(self, folder: Path, shapes: Shapes, model: Model, layout: Layout) -> dict[Key, Stored]:
        """Write files whose data is a hole, and return their tensors."""
        path = folder / "global_step0" / "mp_rank_00_model_states.pt"
        make_folder(path.parent)
        more: dict[str, object] = {
            "buffer_names": [],
            "shared_params": {},
            "optimizer": None,
            "dp_world_size": 1,
            "mp_world_size": 1,
        }
        content = {f"module/{key}": shape for (_, key), shape in shapes.items()}
        found = torch_file.create(path, content, more)
        write_file(folder / "latest", b"global_step0")
        return {(path.name, key.removeprefix("module/")): tensor for key, tensor in found.items()}


Optimizers = list[dict[str, Readable]]
"""What the ranks' files have under optimizer_state_dict."""


def _newest_folder(folder: Path) -> Path:
    latest = folder / "latest"
    return folder / Path(latest.read_text(errors="replace").strip()).name if latest.is_file() else folder


def _files(step: Path, pattern: re.Pattern[str], ending: str) -> list[Path]:
    """Return the files of the data-parallel ranks, in their order.

    Raises:
        CheckpointError: a rank is missing or there twice, or there is other parallelism.
    """
    paths: dict[tuple[int, ...], Path] = {}
    for path in sorted(step.glob(f"*{ending}")):
        if not (match := pattern.fullmatch(path.name)):
            raise CheckpointError(
                f"{path}: not the name of a rank; expected zero_pp_rank_0_mp_rank_00{ending}"
            )
        if int(match[2]):
            raise CheckpointError(
                f"{step}: model parallelism in DeepSpeed is not supported; use Megatron's format"
            )
        if (rank := (int(match[1] or 0),)) in paths:
            raise CheckpointError(f"{path} and {paths[rank].name} are the same rank; remove the stale one")
        paths[rank] = path
    if paths:
        ranks(paths, "data")
    return [path for _, path in sorted(paths.items())]


def _optimizers(step: Path, options: Options) -> tuple[Optimizers, dict[str, Any]]:
    """Return what the ranks have under optimizer_state_dict: the tensors of each, and the content of the first."""
    paths = _files(step, _OPTIMIZER, "_optim_states.pt")
    found, states = [], []
    for path in paths:
        tensors, content = torch_file.read(path, allow_pickle=options.allow_pickle)
        state = content.get("optimizer_state_dict", {})
        count = state.get("partition_count", len(paths))
        count = max(count) if isinstance(count, list | tuple) else count
        if count != len(paths):
            raise CheckpointError(f"{step}: {len(paths)} of {count} files *_optim_states.pt; copy all ranks")
        prefix = "optimizer_state_dict/"
        found.append({name.removeprefix(prefix): each for name, each in tensors.items()})
        states.append(state)
    return found, states[0] if states else {}


def _shapes(path: Path, content: Any) -> list[dict[str, tuple[int, ...]]]:
    shapes = content.get("param_shapes")
    if not shapes:
        raise CheckpointError(f"{path}: no param_shapes; the checkpoint is older than DeepSpeed 0.4")
    return [{name: tuple(shape) for name, shape in group.items()} for group in shapes]


def _groups(tensors: dict[str, Readable], name: str) -> list[Stored]:
    found: list[Stored] = []
    while isinstance(each := tensors.get(f"{name}/{len(found)}"), Stored):
        found.append(each)
    return found


def _by_group(
    optimizers: Optimizers, shapes: list[dict[str, tuple[int, ...]]], paddings: list[list[int]] | None
) -> dict[str, Readable]:
    """ZeRO 1 and 2: the parameters of a group, one after the other, are cut into as many ranges as ranks.

    Args:
        optimizers: tensors of each rank's optimizer.
        shapes: shapes of the parameters of each group.
        paddings: elements after each parameter of each group; None if there are none.
    """
    name = "single_partition_of_fp32_groups"
    ranked = [_groups(tensors, name) for tensors in optimizers]
    if any(len(each) != len(shapes) for each in ranked):
        raise CheckpointError(f"{len(ranked[0])} partitions {name} for {len(shapes)} groups of parameters")
    paddings = paddings or [[0] * len(group) for group in shapes]
    if [len(each) for each in paddings] != [len(group) for group in shapes]:
        raise CheckpointError(
            f"{ranked[0][0].path}: param_alignment_paddings has the lengths {[len(each) for each in paddings]}; "
            f"param_shapes has {[len(group) for group in shapes]} parameters"
        )
    found: dict[str, Readable] = {}
    align = 2 * len(ranked)  # alignment of the padding at the end of a group
    for group, parts, after in zip(shapes, zip(*ranked, strict=True), paddings, strict=True):
        at = 0
        for (parameter, shape), padding in zip(group.items(), after, strict=True):
            found[parameter] = Flat(shape, parts[0].dtype, tuple(_range(parts, at, at + prod(shape))))
            at += prod(shape) + padding
        _check_used(parts, -(-at // align) * align, -(-sum(each.shape[0] for each in parts) // align) * align)
    return found


def _by_parameter(optimizers: Optimizers, shapes: list[dict[str, tuple[int, ...]]]) -> dict[str, Readable]:
    """ZeRO 3: each parameter, padded, is cut into as many ranges as ranks."""
    ranked = [_groups(tensors, "fp32_flat_groups") for tensors in optimizers]
    found: dict[str, Readable] = {}
    at = 0
    for group in shapes:
        for parameter, shape in group.items():
            length = -(-prod(shape) // len(ranked))
            parts = tuple(part for parts in ranked for part in _range(parts, at, at + length))
            found[parameter] = Flat(shape, ranked[0][0].dtype, parts)
            at += length
    for each in ranked:
        _check_used(each, at, sum(part.shape[0] for part in each))
    return found


def _check_used(parts: Sequence[Stored], used: int, available: int) -> None:
    if used != available:
        raise CheckpointError(
            f"{parts[0].path}: the partitions have {available} elements; param_shapes calls for {used}"
        )


def _frozen_parameter(
    name: str, shape: tuple[int, ...], ranked: list[dict[str, Readable]], paths: list[Path]
) -> Readable:
    """Return a frozen parameter: a fragment of each rank in ZeRO 3, else all of it in the first rank."""
    parts = [tensors.get(f"frozen_param_fragments/{name}") for tensors in ranked]
    for path, part in zip(paths, parts, strict=False):
        if part is None:
            raise CheckpointError(f"{path}: lacks the fragment of the frozen parameter {name}")
    fragments = tuple(part for part in parts if part is not None)
    if sum(prod(part.shape) for part in fragments) < prod(shape):
        raise CheckpointError(
            f"{paths[0]}: the fragments of the frozen parameter {name} are fewer than {shape}"
        )
    return Flat(shape, fragments[0].dtype, fragments)


def _range(parts: Any, start: int, stop: int) -> Iterator[Stored]:
    """Return elements of flat tensors that lie one after the other."""
    at = 0
    for part in parts:
        (count,) = part.shape
        first, last = max(start, at), min(stop, at + count)
        if first < last:
            width = part.dtype.itemsize
            place = (part.parts[0][0] + (first - at) * width, (last - first) * width)
            yield Stored(part.path, part.dtype, (last - first,), (place,))
        at += count
    if stop > at:
        raise CheckpointError(
            f"{parts[0].path}: the partitions have {at} elements; param_shapes calls for {stop}"
        )


FORMATS = (DeepSpeed(),)
