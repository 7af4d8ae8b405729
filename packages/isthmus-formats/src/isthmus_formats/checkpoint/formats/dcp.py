"""PyTorch's distributed checkpoints, and Megatron's format ``torch_dist`` on top of them.

``.metadata`` is a pickle; it is read by an unpickler that builds PyTorch's descriptions of tensors and nothing else.
A checkpoint is written with a file for each tensor, which PyTorch reads like any other.
"""

from __future__ import annotations

import enum
import io
import json
import pickle
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from isthmus_common.files import write_file
from isthmus_formats.checkpoint.architectures import Model
from isthmus_formats.checkpoint.containers import torch_file
from isthmus_formats.checkpoint.containers.file_tensors import Assembled, Readable, Stored, name_of
from isthmus_formats.checkpoint.containers.torch_file import Inert
from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.formats import megatron
from isthmus_formats.checkpoint.formats.base import Format, Key, Options, Shapes, Tensors
from isthmus_formats.checkpoint.formats.huggingface import HuggingFace
from isthmus_formats.checkpoint.formats.megatron_arguments import arguments, hint
from isthmus_formats.checkpoint.layout import Bounds, Layout, Piece, whole_slice
from isthmus_formats.checkpoint.name_tables import Rule, fuse_by_table

if TYPE_CHECKING:
    from torch.distributed.checkpoint import metadata as dcp
    from torch.distributed.checkpoint.filesystem import _StorageInfo


@dataclass(frozen=True, slots=True)
class Blob:
    """A tensor as torch.save wrote it into a part of a file; with ``index``, an element of its first dimension."""

    path: Path
    offset: int
    length: int
    whole: tuple[int, ...]
    dtype: torch.dtype
    index: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self.whole[len(self.index) :]

    def read(self) -> torch.Tensor:
        """Return the tensor."""
        tensor = torch_file.read_blob(self.path, self.offset, self.length)
        if (tuple(tensor.shape), tensor.dtype) != (self.whole, self.dtype):
            raise CheckpointError(
                f"{self.path}: a tensor of shape {tuple(tensor.shape)} and type {name_of(tensor.dtype)}; .metadata "
                f"has {self.whole} and {name_of(self.dtype)}"
            )
        return tensor[self.index]


class Dcp(HuggingFace):
    """``.metadata`` and ``*.distcp``, named as the module in Hugging Face transformers."""

    name = "dcp"
    meaning = "PyTorch distributed checkpoint: .metadata and *.distcp"
    ignored = HuggingFace.ignored + r"|^(optim|optimizer|lr_scheduler|train_state|dataloader)\."

    def matches(self, folder: Path) -> bool:
        """Return whether a folder is a checkpoint of this format."""
        return (folder / ".metadata").is_file() and not (folder / "metadata.json").is_file()

    def read(self, folder: Path, options: Options) -> Tensors:
        """Return the tensors of a checkpoint, without their data."""
        return {("", name): tensor for name, tensor in _read(folder).items()}

    def assign_files(self, pieces: list[Piece], shapes: Shapes, shard_size: int) -> list[Piece]:
        """Return the pieces with their files."""
        return pieces

    def create(self, folder: Path, shapes: Shapes, model: Model, layout: Layout) -> dict[Key, Stored]:
        """Write files whose data is a hole, and return their tensors."""
        return _create(folder, shapes, {key: (key[1], ()) for key in shapes})


class TorchDist(Format):
    """Megatron's names in a distributed checkpoint; layers and experts are stacked."""

    name = "megatron-dist"
    meaning = "Megatron, --ckpt-format torch_dist"
    names = ("", "local")

    def matches(self, folder: Path) -> bool:
        """Return whether a folder is a checkpoint of this format."""
        return (megatron.newest_folder(folder) / "metadata.json").is_file() and (
            megatron.newest_folder(folder) / ".metadata"
        ).is_file()

    def read(self, folder: Path, options: Options) -> Tensors:
        """Return the tensors of a checkpoint, without their data."""
        return {("", name): tensor for name, tensor in _read(megatron.newest_folder(folder)).items()}

    def select(self, tensors: Tensors, model: Model) -> Tensors:
        """Return the tensors of the model, layers and experts apart."""
        found: Tensors = {}
        for (_, name), tensor in super().select(tensors, model).items():
            if name.startswith(("optimizer.", "rng_state", "rerun_state")):
                continue
            assert isinstance(tensor, Assembled)
            stacked = [(name, tensor)]
            if re.match(r"decoder\.layers\.(?!\d)", name):
                stacked = _unstack(stacked, "decoder.layers.", "decoder.layers.{}.")
            if ".experts.experts.linear" in name:
                stacked = _unstack(stacked, ".experts.experts.", ".experts.local_experts.{}.")
            for own, each in stacked:
                found["", re.sub(r"\.experts\.experts\.(\d)", r".experts.local_experts.\1", own)] = each
        return found

    def layout(self, folder: Path, tensors: Tensors, model: Model) -> Layout:
        """Return the layout that the files have."""
        keys = {key for _, key in tensors}
        table = {
            names: {
                each.key()
                for each in fuse_by_table(_rules(names, model), model.parameters, model.type, self.name)
            }
            for names in self.names
        }
        names = next((names for names, expected in table.items() if expected <= keys), "")
        found = Layout(vocabulary=tensors["", "embedding.word_embeddings.weight"].shape[0], names=names)
        common = megatron.newest_folder(folder) / "common.pt"
        return megatron.with_saved_arguments(common, model, found) if common.is_file() else found

    def default(self, model: Model) -> Layout:
        """Return the layout of a checkpoint to write."""
        return Layout(vocabulary=model.vocabulary)

    def pieces(self, model: Model, layout: Layout) -> Iterator[Piece]:
        """Return the tensors of a checkpoint of a model."""
        for each in fuse_by_table(_rules(layout.names, model), model.parameters, model.type, self.name):
            padded = layout.vocabulary if each.parameters[0].has_vocabulary else 0
            slices = [(whole_slice(part), padded) for part in each.parameters]
            yield each.piece("", each.key(), slices, model.groups, interleaved=layout.interleaved)

    def check_target(self, model: Model, layout: Layout) -> None:
        """Check that Megatron has options for the configuration."""
        arguments(model, layout)

    def hint(self, model: Model, layout: Layout) -> str:
        """Return a message with the options that Megatron does not read from a checkpoint."""
        return hint(model, layout)

    def create(self, folder: Path, shapes: Shapes, model: Model, layout: Layout) -> dict[Key, Stored]:
        """Write files whose data is a hole, and return their tensors."""
        roles = {each.role for each in model.parameters}
        dimensions = r"local_experts\.(\d+)\."
        if not {"mlp_norm.weight", "moe_norm.weight"} <= roles:  # layers of one kind are stacked, too
            dimensions = r"(?:(?<=^decoder\.layers\.)|local_experts\.)(\d+)\."
        stacked: dict[Key, tuple[str, tuple[int, ...]]] = {}
        for file, name in shapes:
            indices = tuple(int(each) for each in re.findall(dimensions, name))
            plain = re.sub(dimensions, "", name)
            stacked[file, name] = (plain.replace(".experts.linear", ".experts.experts.linear"), indices)
        described = {"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch"}
        write_file(folder / "metadata.json", json.dumps({**described, "common_backend_version": 1}).encode())
        saved = megatron.saved_arguments(shapes, model, layout)
        saved.ckpt_format = "torch_dist"
        torch.save({"checkpoint_version": 3.0, "iteration": 0, "args": saved}, folder / "common.pt")
        return _create(folder, shapes, stacked)


def _rules(names: str, model: Model) -> tuple[Rule, ...]:
    """Return the table of a variant; without Transformer Engine most norms have its names all the same."""
    if names != "local" or "kv_lora_rank" in model.config:
        return megatron.rules(names)
    moved = ("pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_")
    return tuple(replace(rule, stored=rule.stored.replace(*moved)) for rule in megatron.rules(""))


def _read(folder: Path) -> dict[str, Assembled]:
    from torch.distributed.checkpoint import metadata as dcp  # takes half as long as torch, so only here

    content = read_metadata(folder / ".metadata")
    places = {}
    for index, info in (content.storage_data or {}).items():
        path = folder / info.relative_path
        if getattr(info, "transform_descriptors", None):
            raise CheckpointError(
                f"{path}: compressed checkpoints are not supported; save without extensions"
            )
        places[index.fqn, tuple(index.offset or ())] = (path, info.offset, info.length)
    sizes = {path: _length(path) for path, _, _ in places.values()}
    tensors = {}
    for name, described in content.state_dict_metadata.items():
        if not isinstance(described, dcp.TensorStorageMetadata):
            continue
        parts: list[tuple[Bounds, Readable]] = []
        for chunk in described.chunks:
            if (at := places.get((name, tuple(chunk.offsets)))) is None:
                raise CheckpointError(f"{folder}: .metadata has no file for {name} at {tuple(chunk.offsets)}")
            if at[1] + at[2] > (length := sizes[at[0]]):
                raise CheckpointError(
                    f"{at[0]}: truncated: {length} bytes end before {name}; copy the file again"
                )
            bounds = tuple(
                (start, start + length) for start, length in zip(chunk.offsets, chunk.sizes, strict=True)
            )
            parts.append((bounds, Blob(*at, tuple(chunk.sizes), described.properties.dtype)))
        tensors[name] = Assembled(name, tuple(described.size), described.properties.dtype, parts)
    return tensors


def _length(path: Path) -> int:
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file; .metadata names it")
    return path.stat().st_size


def _unstack(tensors: list[tuple[str, Assembled]], stem: str, numbered: str) -> list[tuple[str, Assembled]]:
    """Return the elements of the first dimension as tensors of their own."""
    found = []
    for name, tensor in tensors:
        for index in range(tensor.shape[0]):
            own = name.replace(stem, numbered.format(index), 1)
            parts: list[tuple[Bounds, Readable]] = []
            for (first, *rest), part in tensor.parts:
                if first[0] <= index < first[1]:
                    assert isinstance(part, Blob)
                    at = (*part.index, index - first[0])
                    parts.append(
                        (tuple(rest), Blob(part.path, part.offset, part.length, part.whole, part.dtype, at))
                    )
            if parts:
                found.append((own, Assembled(own, tensor.shape[1:], tensor.dtype, parts)))
    return found


_DESCRIPTIONS = {  # modules of what Megatron adds to .metadata, which is read as Inert
    "torch.distributed.checkpoint.planner",
    "megatron.core.dist_checkpointing.strategies.torch",
    "megatron.core.dist_checkpointing.mapping",
}


class _Unpickler(pickle.Unpickler):
    """Reads .metadata: descriptions of tensors, and nothing that could be executed."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class that may be built."""
        if module == "torch.distributed.checkpoint.metadata" and name in {
            *("Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata"),
            *("TensorProperties", "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING"),
        }:
            return super().find_class(module, name)
        if (module, name) == ("torch.distributed.checkpoint.filesystem", "_StorageInfo"):
            return super().find_class(module, name)
        if (module, name) == ("torch.distributed.checkpoint.filesystem", "_StoragePrefix"):
            return Inert
        if (module, name) == ("torch", "Size"):
            return torch.Size
        if module == "torch" and isinstance(dtype := getattr(torch, name, None), torch.dtype):
            return dtype
        if (module, name) == ("torch.serialization", "_get_layout"):
            return lambda _: torch.strided
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if (module, name) == ("builtins", "getattr"):
            return _member
        if module in _DESCRIPTIONS or (module, name) == ("pathlib", "PosixPath"):
            return Inert
        raise CheckpointError(f"reading it would execute code ({module}.{name})")


def _member(kind: Any, name: str) -> Any:
    """Return a member of an enumeration, which Python 3.11.0 to 3.11.3 pickles as the result of getattr."""
    if not isinstance(kind, enum.EnumType):
        raise CheckpointError("reading it would execute code (builtins.getattr)")
    return kind[name]


def read_metadata(path: Path) -> dcp.Metadata:
    """Return the content of a ``.metadata``, without executing anything in it.

    Raises:
        CheckpointError: it is damaged, names files elsewhere, or asks for code to be executed.
    """
    from torch.distributed.checkpoint import metadata as dcp

    try:
        content = _Unpickler(io.BytesIO(path.read_bytes())).load()
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}; convert it with PyTorch where you trust it") from None
    except Exception as error:  # whatever a damaged pickle leads to
        raise CheckpointError(f"{path}: not the metadata of a checkpoint, or damaged: {error}") from None
    if not isinstance(content, dcp.Metadata):
        raise CheckpointError(f"{path}: not the metadata of a checkpoint")
    for info in (content.storage_data or {}).values():
        if info.relative_path == ".." or Path(info.relative_path).name != info.relative_path:
            raise CheckpointError(f"{path}: names the file {info.relative_path}, which is outside its folder")
    return content


def _create(
    folder: Path, shapes: Shapes, places: dict[Key, tuple[str, tuple[int, ...]]]
) -> dict[Key, Stored]:
    """Write a file for each tensor, and .metadata.

    Args:
        folder: the checkpoint.
        shapes: data type and shape of each tensor.
        places: the name of each in the checkpoint, and its indices in the stacked dimensions before its own.
    """
    from torch.distributed.checkpoint import metadata as dcp
    from torch.distributed.checkpoint.filesystem import _StorageInfo

    tensors: dict[Key, Stored] = {}
    storage: dict[dcp.MetadataIndex, _StorageInfo] = {}
    chunks: dict[str, list[dcp.ChunkStorageMetadata]] = defaultdict(list)
    types: dict[str, torch.dtype] = {}
    for number, (key, (dtype, shape)) in enumerate(shapes.items()):
        name, indices = places[key]
        path = folder / f"__0_{number}.distcp"
        full = (*(1 for _ in indices), *shape)
        (stored,) = torch_file.create(path, {"tensor": (dtype, full)}, bare=True).values()
        tensors[key] = Stored(path, dtype, shape, stored.parts)
        offsets = torch.Size((*indices, *(0 for _ in shape)))
        index = dcp.MetadataIndex(name, offsets, len(chunks[name]))
        storage[index] = _StorageInfo(path.name, 0, path.stat().st_size)
        chunks[name].append(dcp.ChunkStorageMetadata(offsets, torch.Size(full)))
        types[name] = dtype
    described: dict[str, Any] = {
        name: dcp.TensorStorageMetadata(
            dcp.TensorProperties(dtype=types[name]),
            torch.Size(
                max(chunk.offsets[each] + chunk.sizes[each] for chunk in found)
                for each in range(len(found[0].sizes))
            ),
            found,
        )
        for name, found in chunks.items()
    }
    write_file(folder / ".metadata", pickle.dumps(dcp.Metadata(described, {}, storage)))
    return tensors


FORMATS = (Dcp(), TorchDist())
