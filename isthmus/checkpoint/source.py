"""A checkpoint to read: its format, model, layout and tensors, and the manifest if Isthmus wrote it."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from isthmus.checkpoint.architectures import Config, Model, model, read_config
from isthmus.checkpoint.containers.stored import Readable, digest
from isthmus.checkpoint.errors import CheckpointError
from isthmus.checkpoint.formats import detect, named
from isthmus.checkpoint.formats.base import Format, Key, Tensors
from isthmus.checkpoint.layout import Layout, Parameter, Piece, unpack

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
        hashes: SHA-256 of tensors, from the manifest; empty without one.
    """

    folder: Path
    format: Format
    model: Model
    layout: Layout
    tensors: Tensors
    pieces: dict[str, list[Piece]]
    hashes: dict[Key, str]

    def parameters(self, wanted: Iterable[Parameter]) -> dict[str, torch.Tensor]:
        """Return whole parameters, reading each piece once.

        Raises:
            CheckpointError: a tensor is damaged.
        """
        names = {each.name: each for each in wanted}
        result: dict[str, torch.Tensor] = {}
        for piece in {id(piece): piece for name in names for piece in self.pieces[name]}.values():
            parts = unpack(piece, self._read(piece))
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

    def dtype(self, parameter: Parameter) -> torch.dtype:
        """Return the data type of a parameter."""
        piece = self.pieces[parameter.name][0]
        return self.tensors[piece.file, piece.key].dtype

    def _read(self, piece: Piece) -> torch.Tensor:
        key = (piece.file, piece.key)
        tensor = self.tensors[key].read()
        if self.hashes.get(key, found := "") and (found := digest(tensor)) != self.hashes[key]:
            raise CheckpointError(
                f"{self.folder}: {piece.key} {f'of {piece.file} ' if piece.file else ''}does not match its hash in "
                f"{MANIFEST} ({found[:12]}, not {self.hashes[key][:12]}): the file is damaged; copy it again"
            )
        return tensor


def open_source(
    folder: Path, *, format: str = "", config: Path | None = None, allow_pickle: bool = False, ignore: str = ""
) -> Source:
    """Open a checkpoint and check that it has every parameter of its model, in the right shape.

    Args:
        folder: where it is.
        format: its format; empty to detect it.
        config: its config.json, if the checkpoint has none.
        allow_pickle: execute what the files ask for.
        ignore: names of tensors to leave out, a regular expression.

    Raises:
        CheckpointError: it is not complete.
    """
    kind = named(format) if format else detect(folder)
    manifest = read_manifest(folder)
    found = read_config(config) if config else kind.config(folder) or manifest.get("config")
    if found is None:
        raise CheckpointError(f"{folder}: no config.json; give that of the model with --config")
    of = model(found)
    stored = kind.read(folder, allow_pickle=allow_pickle)
    tensors = kind.select(stored, of)
    if ignore:
        tensors = {key: each for key, each in tensors.items() if not re.search(ignore, key[1])}
    same = manifest.get("format") == kind.name and "layout" in manifest
    layout = Layout(**_tuples(manifest["layout"])) if same and kind.sharded else kind.layout(folder, tensors, of)
    pieces = _checked(folder, kind.pieces(of, layout), tensors)
    hashes = {("" if ("", key) in tensors else file, key): sha for file, key, _, _, sha in manifest.get("tensors", ())}
    return Source(folder, kind, of, layout, tensors, pieces, hashes if same else {})


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a checkpoint that Isthmus wrote; empty if there is none.

    Raises:
        CheckpointError: it is damaged.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(path.read_bytes()))
    except ValueError as error:
        raise CheckpointError(f"{path}: damaged: {error}; delete it to read the checkpoint without hashes") from None


def _tuples(layout: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in layout.items()}


def _checked(folder: Path, pieces: Iterable[Piece], tensors: dict[Key, Readable]) -> dict[str, list[Piece]]:
    """Return the pieces of each parameter, replicas left out."""
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
            raise CheckpointError(f"{folder}: {name} has the shape {shape}; config.json calls for {piece.shape}")
        if not piece.replica:
            for each in piece.slices:
                holding[each.parameter.name].append(piece)
    if unknown := sorted(key for file, key in set(tensors) - known):
        more = f" and {len(unknown) - 1} more tensors" if len(unknown) > 1 else ""
        raise CheckpointError(
            f"{folder}: {unknown[0]}{more} unknown to the architecture; check config.json, or leave them out "
            f"with --ignore '{re.escape(unknown[0])}'"
        )
    return holding
