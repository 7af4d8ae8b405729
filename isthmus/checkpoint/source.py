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

from isthmus.checkpoint.architectures import Model, model, read_config
from isthmus.checkpoint.containers.stored import Assembled, Readable, Stored, digest
from isthmus.checkpoint.errors import CheckpointError
from isthmus.checkpoint.formats import detect, named
from isthmus.checkpoint.formats.base import Format, Key, Options, Tensors
from isthmus.checkpoint.layout import Layout, Parameter, Piece, unpack

READ = Options()
_OUTPUT = re.compile(
    r"(^|[/.])(lm_head|output|output_layer)\.weight$"
)  # some files have it though it is tied
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
    """

    folder: Path
    format: Format
    model: Model
    layout: Layout
    tensors: Tensors
    pieces: dict[str, list[Piece]]

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
        """Its shape."""
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> torch.dtype:
        """Its data type."""
        return self.tensor.dtype

    def read(self) -> torch.Tensor:
        """Return it.

        Raises:
            CheckpointError: it is not what was written.
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
        CheckpointError: it is not complete.
    """
    kind = named(format) if format else detect(folder)
    manifest = read_manifest(folder)
    found = read_config(config) if config else kind.config(folder) or manifest.get("config")
    if found is None:
        raise CheckpointError(f"{folder}: no config.json; give that of the model with --config")
    of = model(found)
    stored = kind.read(folder, options)
    tensors = kind.select(stored, of)
    if ignore:
        tensors = {key: each for key, each in tensors.items() if not re.search(ignore, key[1])}
    layout = kind.layout(folder, tensors, of)
    if manifest.get("format") == kind.name:
        written = Layout(**_tuples(manifest["layout"]))
        layout = replace(layout, interleaved=written.interleaved) if kind.whole else written
        hashes = {(file, key): sha for file, key, _, _, sha in manifest["tensors"]}
        tensors = {key: _hashed(folder, key, tensor, hashes) for key, tensor in tensors.items()}
    return Source(
        folder, kind, of, layout, tensors, _checked(folder, kind.pieces(of, layout), tensors, of.tied)
    )


def _hashed(folder: Path, key: Key, tensor: Readable, hashes: dict[Key, str]) -> Readable:
    """Return a tensor that checks its hash, or those of the ranks' slices it is put together from."""
    file, name = key
    if isinstance(tensor, Stored):
        file = tensor.path.relative_to(folder).as_posix() if ("", name) not in hashes and not file else file
    if sha := hashes.get((file, name)):
        return Hashed(tensor, f"{folder}: {name}{f' of {file}' if file else ''}", sha)
    if isinstance(tensor, Assembled):
        parts = [
            (bounds, _hashed(folder, ("", name), part, hashes))
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
    try:
        return dict(json.loads(path.read_bytes()))
    except ValueError as error:
        raise CheckpointError(
            f"{path}: damaged: {error}; delete it to read the checkpoint without hashes"
        ) from None


def _tuples(layout: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in layout.items()}


def _checked(folder: Path, pieces: Iterable[Piece], tensors: Tensors, tied: bool) -> dict[str, list[Piece]]:
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
            raise CheckpointError(
                f"{folder}: {name} has the shape {shape}; config.json calls for {piece.shape}"
            )
        if not piece.replica:
            for each in piece.slices:
                holding[each.parameter.name].append(piece)
    unknown = sorted(key for file, key in set(tensors) - known if not (tied and _OUTPUT.search(key)))
    if unknown:
        more = f" and {len(unknown) - 1} more tensors" if len(unknown) > 1 else ""
        raise CheckpointError(
            f"{folder}: {unknown[0]}{more} unknown to the architecture; check config.json, or leave them out "
            f"with --ignore '{re.escape(unknown[0])}'"
        )
    return holding
