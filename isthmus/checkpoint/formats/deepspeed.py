"""DeepSpeed: flat partitions of ZeRO 1 to 3.

The float32 weights of the optimizer are read. Without an optimizer, as after ZeRO 0, the module's are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import torch

from isthmus._support.files import make_folder, write_file
from isthmus.checkpoint.architectures import Model
from isthmus.checkpoint.containers import torch_file
from isthmus.checkpoint.containers.stored import Readable, Stored
from isthmus.checkpoint.errors import CheckpointError
from isthmus.checkpoint.formats.base import Key, Options, Shapes, Tensors, ranks
from isthmus.checkpoint.formats.huggingface import HuggingFace
from isthmus.checkpoint.layout import Layout, Piece

_OPTIMIZER = re.compile(r"(?:bf16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt")


@dataclass(frozen=True, slots=True)
class Flat:
    """A tensor from ranges of flat ones, one after the other."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    parts: tuple[Stored, ...]

    def read(self) -> torch.Tensor:
        """Return it; the last part may be padded."""
        return torch.cat([part.read() for part in self.parts])[: torch.Size(self.shape).numel()].reshape(
            self.shape
        )


class DeepSpeed(HuggingFace):
    """``global_stepN/*_optim_states.pt``."""

    name = "deepspeed"
    meaning = "DeepSpeed: ZeRO 1 to 3; written as the module alone"

    def matches(self, folder: Path) -> bool:
        """Return whether a folder is a checkpoint of this format."""
        return any(_newest(folder).glob("*_model_states.pt"))

    def read(self, folder: Path, options: Options) -> Tensors:
        """Return the tensors of a checkpoint, without their data."""
        step = _newest(folder)
        model_states = sorted(step.glob("*_model_states.pt"))
        if len({path.name.partition("mp_rank_")[2] for path in model_states}) > 1:
            raise CheckpointError(
                f"{step}: model parallelism in DeepSpeed is not supported; use Megatron's format"
            )
        tensors, content = torch_file.read(model_states[0], allow_pickle=options.allow_pickle)
        optimizers = _optimizers(step, options)
        module = {
            name.removeprefix("module/"): each for name, each in tensors.items() if name.startswith("module/")
        }
        if not optimizers:
            return {("", name): tensor for name, tensor in module.items()}
        shapes = _shapes(model_states[0], content)
        third = "fp32_flat_groups/0" in optimizers[0]
        found = _by_parameter(optimizers, shapes) if third else _by_group(optimizers, shapes)
        shared = content.get("shared_params") or {}
        shared = dict(shared) if isinstance(shared, dict) else dict(map(tuple, shared))
        found |= {name: found[other] for name, other in shared.items() if other in found}
        for name, tensor in module.items():  # buffers, and parameters that are frozen
            if name not in found and tensor.shape and 0 not in tensor.shape:
                found[name] = tensor
        return {("", name): tensor for name, tensor in found.items()}

    def placed(self, pieces: list[Piece], shapes: Shapes, shard_size: int) -> list[Piece]:
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


def _newest(folder: Path) -> Path:
    latest = folder / "latest"
    return folder / Path(latest.read_text(errors="replace").strip()).name if latest.is_file() else folder


def _optimizers(step: Path, options: Options) -> Optimizers:
    paths: dict[tuple[int, ...], Path] = {}
    for path in sorted(step.glob("*_optim_states.pt")):
        if not (match := _OPTIMIZER.fullmatch(path.name)):
            raise CheckpointError(
                f"{path}: not the name of a rank; expected zero_pp_rank_0_mp_rank_00_optim_states.pt"
            )
        if (rank := (int(match[1]),)) in paths:
            raise CheckpointError(f"{path} and {paths[rank].name} are the same rank; remove the stale one")
        paths[rank] = path
    if paths:
        ranks(paths, "data")
    found = []
    for _, path in sorted(paths.items()):
        tensors, content = torch_file.read(path, allow_pickle=options.allow_pickle)
        state = content.get("optimizer_state_dict", {})
        count = state.get("partition_count", len(paths))
        count = max(count) if isinstance(count, list | tuple) else count
        if count != len(paths):
            raise CheckpointError(f"{step}: {len(paths)} of {count} files *_optim_states.pt; copy all ranks")
        prefix = "optimizer_state_dict/"
        found.append({name.removeprefix(prefix): each for name, each in tensors.items()})
    return found


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


def _by_group(optimizers: Optimizers, shapes: list[dict[str, tuple[int, ...]]]) -> dict[str, Readable]:
    """ZeRO 1 and 2: the parameters of a group, one after the other, are cut into as many ranges as ranks."""
    name = "single_partition_of_fp32_groups"
    ranked = [_groups(tensors, name) for tensors in optimizers]
    if any(len(each) != len(shapes) for each in ranked):
        raise CheckpointError(f"{len(ranked[0])} partitions {name} for {len(shapes)} groups of parameters")
    found: dict[str, Readable] = {}
    for group, parts in zip(shapes, zip(*ranked, strict=True), strict=True):
        at = 0
        for parameter, shape in group.items():
            found[parameter] = Flat(shape, parts[0].dtype, tuple(_range(parts, at, at + prod(shape))))
            at += prod(shape)
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
    return found


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
