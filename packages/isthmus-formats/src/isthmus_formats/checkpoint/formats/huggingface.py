"""Hugging Face: safetensors or .bin files with an index."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from isthmus_common.files import write_file
from isthmus_formats.checkpoint.architectures import Model
from isthmus_formats.checkpoint.containers import safetensors_file, torch_file
from isthmus_formats.checkpoint.containers.file_tensors import Readable, Stored, size
from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.formats.base import Format, Options, Shapes, Tensors, by_file, read_json
from isthmus_formats.checkpoint.layout import Layout, Piece, whole_slice
from isthmus_formats.checkpoint.name_tables import Fused, fuse_by_table


class HuggingFace(Format):
    """``model.safetensors``, or shards with an index."""

    name = "huggingface"
    meaning = "Hugging Face: config.json and *.safetensors"
    pairs = False
    stem = "model"
    suffix = ".safetensors"
    ignored = Format.ignored + r"|\.attn\.(masked_)?bias$"

    def matches(self, folder: Path) -> bool:
        """Return whether a folder is a checkpoint of this format."""
        return (folder / f"{self.stem}{self.suffix}").is_file() or self._index(folder).is_file()

    def _index(self, folder: Path) -> Path:
        return folder / f"{self.stem}{self.suffix}.index.json"

    def _file(self, path: Path, options: Options) -> dict[str, Readable]:
        return dict(safetensors_file.read(path))

    def read(self, folder: Path, options: Options) -> Tensors:
        """Return the tensors of a checkpoint, without their data."""
        if not self._index(folder).is_file():
            found = self._file(folder / f"{self.stem}{self.suffix}", options)
            return {("", name): tensor for name, tensor in found.items()}
        names = read_json(self._index(folder)).get("weight_map")
        if not isinstance(names, dict):
            raise CheckpointError(f"{self._index(folder)}: no weight_map")
        tensors: Tensors = {}
        for file in sorted(set(names.values())):
            if Path(file).name != file:
                raise CheckpointError(f"{self._index(folder)}: {file} is outside the folder")
            if not (folder / file).is_file():
                raise CheckpointError(f"{folder / file}: no such file; {self._index(folder).name} names it")
            for name, tensor in self._file(folder / file, options).items():
                if ("", name) in tensors:
                    raise CheckpointError(f"{folder}: two files have the tensor {name}; remove the stale one")
                tensors["", name] = tensor
        if missing := sorted(set(names) - {name for _, name in tensors}):
            raise CheckpointError(
                f"{folder / names[missing[0]]}: lacks {missing[0]}, which the index has there"
            )
        return tensors

    def select(self, tensors: Tensors, model: Model) -> Tensors:
        """Return the tensors of the model, under the names that its class with a head has."""
        first = next(fuse_by_table(model.names, model.parameters, model.type, self.name)).key()
        base = first.partition(".")[0] + "."
        if ("", first.removeprefix(base)) in tensors:  # saved without a head
            tensors = {(file, base + name): each for (file, name), each in tensors.items()}
        prefixes = {name[: -len(first)] for _, name in tensors if name.endswith(first)}
        if prefixes and "" not in prefixes:  # saved within a wrapper
            prefix = min(prefixes, key=len)
            tensors = {
                (file, name.removeprefix(prefix)): each
                for (file, name), each in tensors.items()
                if name.startswith(prefix)
            }
        beyond = tuple(f"model.layers.{layer}." for layer in model.further_layers)
        kept = {key: each for key, each in tensors.items() if not key[1].startswith(beyond)}
        return super().select(kept, model)

    def pieces(self, model: Model, layout: Layout) -> Iterator[Piece]:
        """Return the tensors of a checkpoint of a model."""
        for each in sorted(
            fuse_by_table(model.names, model.parameters, model.type, self.name), key=Fused.key
        ):
            yield each.piece(
                "", each.key(), [(whole_slice(part), 0) for part in each.parameters], model.groups
            )

    def assign_files(self, pieces: list[Piece], shapes: Shapes, shard_size: int) -> list[Piece]:
        """Return the pieces, distributed to files of at most a given size."""
        shards: list[list[Piece]] = [[]]
        filled = 0
        for piece in pieces:
            length = size(*shapes[piece.file, piece.key])
            if shards[-1] and filled + length > shard_size:
                shards.append([])
                filled = 0
            shards[-1].append(piece)
            filled += length
        number = len(shards)
        numbered = (
            f"{self.stem}-{{:05}}-of-{number:05}{self.suffix}" if number > 1 else f"{self.stem}{self.suffix}"
        )
        return [
            replace(piece, file=numbered.format(index))
            for index, shard in enumerate(shards, 1)
            for piece in shard
        ]

    def create(
        self, folder: Path, shapes: Shapes, model: Model, layout: Layout
    ) -> dict[tuple[str, str], Stored]:
        """Write files whose data is a hole, and return their tensors."""
        files = by_file(shapes)
        if len(files) > 1:
            index = {
                "metadata": {"total_size": sum(size(*each) for each in shapes.values())},
                "weight_map": {key: file for file, key in sorted(shapes, key=lambda each: each[1])},
            }
            write_file(self._index(folder), json.dumps(index, indent=2).encode())
        return {
            (file, key): tensor
            for file, content in files.items()
            for key, tensor in self._create(folder / file, content).items()
        }

    def _create(self, path: Path, content: dict) -> dict[str, Stored]:
        return safetensors_file.create(path, content)


class HuggingFaceBin(HuggingFace):
    """``pytorch_model.bin``, or shards with an index."""

    name = "huggingface-bin"
    meaning = "Hugging Face: config.json and pytorch_model*.bin"
    stem = "pytorch_model"
    suffix = ".bin"

    def _file(self, path: Path, options: Options) -> dict[str, Readable]:
        return torch_file.read(path, allow_pickle=options.allow_pickle)[0]

    def _create(self, path: Path, content: dict) -> dict[str, Stored]:
        return torch_file.create(path, content)


FORMATS = (HuggingFace(), HuggingFaceBin())
