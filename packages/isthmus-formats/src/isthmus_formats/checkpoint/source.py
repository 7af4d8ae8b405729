"""A checkpoint to read: its format, model, layout and tensors, and the manifest if Isthmus wrote it."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from isthmus_formats.checkpoint.architectures import Model, model, read_config
from isthmus_formats.checkpoint.containers.file_tensors import (
    Assembled,
    Readable,
    Stored,
    Unsupported,
    digest,
    name_of,
)
from isthmus_formats.checkpoint.errors import CheckpointError, report_damage
from isthmus_formats.checkpoint.formats import detect, find_format
from isthmus_formats.checkpoint.formats.base import Format, Key, Options, Tensors
from isthmus_formats.checkpoint.layout import Layout, Parameter, Piece, unpack
from isthmus_formats.checkpoint.rope import check_pairs

READ = Options()
# Modules that wrap others: activation checkpointing, FSDP1, torch.compile, DistributedDataParallel.
_WRAPPERS = re.compile(r"(?<![^./])(_checkpoint_wrapped_module|_fsdp_wrapped_module|_orig_mod|module)\.")
MANIFEST = "isthmus-manifest.json"


@dataclass(frozen=True)
class Source:
    """A checkpoint whose names and shapes were checked against its model.

    Attributes:
        folder: where it is.
        format: its format.
        model: its model.
        layout: its layout.
        tensors: its tensors.
        pieces: the pieces that hold each parameter.
        note: what differs from its configuration; empty if nothing.
    """

    folder: Path
    format: Format
    model: Model
    layout: Layout
    tensors: Tensors
    pieces: dict[str, list[Piece]]
    note: str = ""

    def parameters(self, wanted: Iterable[Parameter]) -> dict[str, torch.Tensor]:
        """Return whole parameters, reading each piece once.

        Raises:
            CheckpointError: a tensor is damaged.
        """
        names = {each.name: each for each in wanted}
        result: dict[str, torch.Tensor] = {}
        for piece in {id(piece): piece for name in names for piece in self.pieces[name]}.values():
            parts = unpack(piece, self.tensors[piece.file, piece.key].read())
            for part, each in zip(parts, piece.slices, strict=True):
                parameter = each.parameter
                if parameter.name not in names:
                    continue
                if each.shape == parameter.shape:
                    result[parameter.name] = part
                elif each.size:
                    if parameter.name not in result:
                        result[parameter.name] = torch.empty(parameter.shape, dtype=part.dtype)
                    each.of(result[parameter.name]).copy_(part)
        return result

    def files(self) -> list[Path]:
        """Return the files of the checkpoint."""
        return sorted(each for each in self.folder.rglob("*") if each.is_file())

    def dtype(self, parameter: Parameter) -> torch.dtype:
        """Return the data type of a parameter."""
        piece = self.pieces[parameter.name][0]
        return self.tensors[piece.file, piece.key].dtype


@dataclass(frozen=True, slots=True)
class Hashed:
    """A tensor whose hash is checked when it is read."""

    tensor: Readable
    name: str
    sha: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the tensor."""
        return self.tensor.dtype

    def read(self) -> torch.Tensor:
        """Return the tensor.

        Raises:
            CheckpointError: its hash is not that of the manifest.
        """
        tensor = self.tensor.read()
        if (found := digest(tensor)) != self.sha:
            raise CheckpointError(
                f"{self.name} does not match its hash in {MANIFEST} ({found[:12]}, not {self.sha[:12]}): the file is "
                "damaged; copy it again"
            )
        return tensor


def open_source(
    folder: Path, *, format: str = "", config: Path | None = None, options: Options = READ, ignore: str = ""
) -> Source:
    """Open a checkpoint and check that it has every parameter of its model, in the right shape.

    Args:
        folder: where it is.
        format: its format; empty to detect it.
        config: its config.json, if the checkpoint has none.
        options: how to read it.
        ignore: names of tensors to leave out, a regular expression.

    Raises:
        CheckpointError: it is not complete, or damaged.
    """
    with report_damage(
        f"{folder}: the checkpoint or its configuration", "copy it again, or correct config.json"
    ):
        return _open(folder, format, config, options, ignore)


def _open(folder: Path, format: str, config: Path | None, options: Options, ignore: str) -> Source:
    kind = find_format(format) if format else detect(folder)
    manifest = read_manifest(folder)
    found = read_config(config) if config else kind.config(folder) or manifest.get("config")
    if found is None:
        raise CheckpointError(f"{folder}: no config.json; give that of the model with --config")
    of = model(found)
    stored = _unwrap_names(folder, kind.read(folder, options))
    tensors = kind.select(stored, of)
    if ignore:
        tensors = {key: each for key, each in tensors.items() if not re.search(ignore, key[1])}
    for tensor in tensors.values():
        if isinstance(tensor, Unsupported):
            tensor.read()  # raises the error that names it
    layout = kind.layout(folder, tensors, of)
    if manifest.get("format") == kind.name:
        with report_damage(folder / MANIFEST, "delete it to read the checkpoint without hashes"):
            written = Layout(**_tuples(manifest["layout"]))
            layout = replace(layout, interleaved=written.interleaved) if kind.whole else written
            hashes = {(file, key): sha for file, key, _, _, sha in manifest["tensors"]}
        tensors = {key: _check_hash(folder, key, tensor, hashes) for key, tensor in tensors.items()}
    check_pairs(of.config, of.parameters, layout)
    output = _output_keys(kind, of, layout) & tensors.keys() if of.is_tied else set()

    def make_source(of: Model) -> Source:
        pieces = kind.pieces(of, layout)
        holding = _pieces_by_parameter(folder, pieces, tensors, output)
        return Source(folder, kind, of, layout, tensors, holding, _note_left_out(folder, kind, of, stored))

    if output:
        source = make_source(_untie(of))
        if not _is_tied(source):
            note = (
                f"{folder}: the output layer differs from the embedding; tie_word_embeddings is set to false"
            )
            return replace(source, note="; ".join(filter(None, (note, source.note))))
    return make_source(of)


def _unwrap_names(folder: Path, tensors: Tensors) -> Tensors:
    """Return tensors under their names without those of the modules that wrap others.

    Raises:
        CheckpointError: two tensors have the same name then.
    """
    found: Tensors = {}
    for (file, name), tensor in tensors.items():
        plain = (file, _WRAPPERS.sub("", name))
        if plain in found:
            raise CheckpointError(f"{folder}: {name} and another tensor are both {plain[1]} without wrappers")
        found[plain] = tensor
    return found


def _note_left_out(folder: Path, kind: Format, of: Model, stored: Tensors) -> str:
    """Return a note about layers that predict further tokens; empty if there are none."""
    numbers = "|".join(map(str, of.further_layers)) if kind.whole else ""
    count = sum(bool(re.search(rf"\blayers\.({numbers})\.", name)) for _, name in stored) if numbers else 0
    return f"{folder}: {count} tensors of layers that predict further tokens are left out" if count else ""


def _untie(of: Model) -> Model:
    """Return a model whose output layer has parameters of its own."""
    return model({**of.config, "tie_word_embeddings": False})


def _output_keys(kind: Format, of: Model, layout: Layout) -> set[Key]:
    """Return the keys of the output layer; some checkpoints store it though it is tied."""
    return {
        (piece.file, piece.key)
        for piece in kind.pieces(_untie(of), layout)
        if piece.slices[0].parameter.role == "output.weight"
    }


def _is_tied(source: Source) -> bool:
    """Return whether the output layer has the values of the embedding."""
    ends = [each for each in source.model.parameters if each.role in {"embedding.weight", "output.weight"}]
    embedding, output = (source.parameters([each])[each.name] for each in ends)
    return embedding.dtype == output.dtype and torch.equal(embedding, output)


def _check_hash(folder: Path, key: Key, tensor: Readable, hashes: dict[Key, str]) -> Readable:
    """Return a tensor that checks its hash, or those of the ranks' slices it is put together from."""
    file, name = key
    if isinstance(tensor, Stored):
        file = tensor.path.relative_to(folder).as_posix() if ("", name) not in hashes and not file else file
    if sha := hashes.get((file, name)):
        return Hashed(tensor, f"{folder}: {name}{f' of {file}' if file else ''}", sha)
    if isinstance(tensor, Assembled):
        parts = [
            (bounds, _check_hash(folder, ("", name), part, hashes))
            if isinstance(part, Stored)
            else (bounds, part)
            for bounds, part in tensor.parts
        ]
        return replace(tensor, parts=parts)
    return tensor


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a checkpoint that Isthmus wrote; empty if there is none.

    Raises:
        CheckpointError: it is damaged.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    with report_damage(path, "delete it to read the checkpoint without hashes"):
        manifest = json.loads(path.read_bytes())
        if not isinstance(manifest, dict) or not isinstance(manifest.get("config"), dict):
            raise ValueError("expected an object with a config")
    return manifest


def _tuples(layout: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in layout.items()}


def _pieces_by_parameter(
    folder: Path, pieces: Iterable[Piece], tensors: Tensors, redundant: set[Key]
) -> dict[str, list[Piece]]:
    """Check names, shapes and data types; return the pieces of each parameter, replicas left out."""
    holding: dict[str, list[Piece]] = defaultdict(list)
    known = set()
    for piece in pieces:
        key = (piece.file, piece.key)
        known.add(key)
        name = piece.key + (f" of {piece.file}" if piece.file else "")
        if key not in tensors:
            raise CheckpointError(f"{folder}: lacks {name}, which config.json calls for")
        shape = tuple(tensors[key].shape)
        if shape != piece.shape:
            raise CheckpointError(
                f"{folder}: {name} has the shape {shape}; config.json calls for {piece.shape}"
            )
        if not piece.replica:
            first = holding.get(piece.slices[0].parameter.name, (piece,))[0]
            if tensors[key].dtype != (dtype := tensors[first.file, first.key].dtype):
                raise CheckpointError(
                    f"{folder}: {name} is {name_of(tensors[key].dtype)}, but {name_of(dtype)} in {first.file}"
                )
            for each in piece.slices:
                holding[each.parameter.name].append(piece)
    unknown = sorted(key for _, key in tensors.keys() - known - redundant)
    if unknown:
        more = f" and {len(unknown) - 1} more tensors" if len(unknown) > 1 else ""
        raise CheckpointError(
            f"{folder}: {unknown[0]}{more} unknown to the architecture; check config.json, or leave them out "
            f"with --ignore '{re.escape(unknown[0])}'"
        )
    return holding
