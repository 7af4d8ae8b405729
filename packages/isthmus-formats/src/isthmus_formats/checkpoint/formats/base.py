"""Interface of a format: its files, and the place of each piece."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from isthmus_formats.checkpoint.architectures import Config, Model, read_config
from isthmus_formats.checkpoint.containers.file_tensors import DTYPE_NAMES, Readable, Stored
from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.layout import Layout, Piece

Key = tuple[str, str]
"""File and name of a tensor; the file is empty where the name alone identifies it."""
Tensors = dict[Key, Readable]
Shapes = Mapping[Key, tuple[torch.dtype, tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class Options:
    """Options of reading a checkpoint.

    Attributes:
        allow_pickle: execute what the files ask for.
        strategy: strategy files of MindSpore, merged or one for each pipeline stage; empty to look for them.
    """

    allow_pickle: bool = False
    strategy: Sequence[Path] = ()


class Format:
    """A format of checkpoints, one instance in each module of this folder.

    Attributes:
        name: its name on the command line.
        meaning: one line for people.
        whole: whether :meth:`Format.read` returns whole tensors, whatever the files hold.
        sharded: the sizes of a layout that it can have when written.
        names: the variants of its names.
        pairs: whether rotary pairs may be neighbours.
        ignored: stored names that hold nothing of the model, a regular expression.
        dtypes: the data types that its files can store.
    """

    name: str
    meaning: str
    whole = True
    sharded: tuple[str, ...] = ()
    names: tuple[str, ...] = ("",)
    pairs = True
    dtypes: Collection[torch.dtype] = DTYPE_NAMES.keys()
    ignored = r"rotary_emb\.inv_freq$|rope\.freqs$|_extra_state"

    def matches(self, folder: Path) -> bool:
        """Return whether a folder is a checkpoint of this format."""
        raise NotImplementedError

    def read(self, folder: Path, options: Options) -> Tensors:
        """Return the tensors of a checkpoint, without their data.

        Raises:
            CheckpointError: files are missing, damaged or contradict each other.
        """
        raise NotImplementedError

    def config(self, folder: Path) -> Config | None:
        """Return the configuration of the model; None if the checkpoint has none."""
        path = folder / "config.json"
        return read_config(path) if path.is_file() else None

    def select(self, tensors: Tensors, model: Model) -> Tensors:
        """Return the tensors of the model, under the names that :meth:`pieces` gives them."""
        return {key: each for key, each in tensors.items() if not re.search(self.ignored, key[1])}

    def layout(self, folder: Path, tensors: Tensors, model: Model) -> Layout:
        """Return the layout that the files have."""
        return Layout()

    def default(self, model: Model) -> Layout:
        """Return the layout of a checkpoint to write."""
        return Layout()

    def pieces(self, model: Model, layout: Layout) -> Iterable[Piece]:
        """Return the tensors of a checkpoint of a model."""
        raise NotImplementedError

    def assign_files(self, pieces: list[Piece], shapes: Shapes, shard_size: int) -> list[Piece]:
        """Return the pieces with their files."""
        return pieces

    def check_target(self, model: Model, layout: Layout) -> None:
        """Check that a checkpoint of this format can express the configuration of a model.

        Raises:
            CheckpointError: it cannot.
        """

    def hint(self, model: Model, layout: Layout) -> str:
        """Return a message for the user of a written checkpoint, or an empty string."""
        return ""

    def create(self, folder: Path, shapes: Shapes, model: Model, layout: Layout) -> dict[Key, Stored]:
        """Write files whose data is a hole, and return their tensors."""
        raise NotImplementedError


def by_file(shapes: Shapes) -> dict[str, dict[str, tuple[torch.dtype, tuple[int, ...]]]]:
    """Return the shapes of each file."""
    files: dict[str, dict[str, tuple[torch.dtype, tuple[int, ...]]]] = {}
    for (file, key), shape in shapes.items():
        files.setdefault(file, {})[key] = shape
    return files


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        CheckpointError: the file is not one.
    """
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: expected a JSON object")
    return value


def ranks(found: Mapping[tuple[int, ...], Path], what: str) -> tuple[int, ...]:
    """Return the size of each dimension of the ranks that files are named after.

    Raises:
        CheckpointError: a rank has no file.
    """
    sizes = tuple(max(each) + 1 for each in zip(*found, strict=True))
    if len(found) != math.prod(sizes):
        missing = next(each for each in itertools.product(*map(range, sizes)) if each not in found)
        raise CheckpointError(
            f"no file for rank {missing} of {sizes} ({what}); copy all ranks of the checkpoint"
        )
    return sizes
