"""Files of samples: one module for each format, with ``write`` and ``read``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from isthmus.data.records import DataError
from isthmus.data.samples import Sample


class Plan(NamedTuple):
    """What a writer must know before the first sample.

    Attributes:
        samples: returns the samples; each call from the first one.
        size: number of samples.
        tokens: of all samples, padding included.
        length: that samples are padded to; 0 if they are not.
        vocabulary: number of tokens of the tokenizer.
        masked: whether the samples have masks.
        packed: whether a sample may have several records, or padding.
    """

    samples: Callable[[], Iterator[Sample]]
    size: int
    tokens: int
    length: int
    vocabulary: int
    masked: bool
    packed: bool


FORMATS = {
    "megatron": ("", "megatron"),
    "mindrecord": (".mindrecord", "mindrecord"),
    "safetensors": (".safetensors", "tensors"),
    "parquet": (".parquet", "tables"),
    "jsonl": (".jsonl", "tables"),
}


def name_of(path: Path) -> str:
    """Return the format of a file by its suffix; a prefix, .bin or .idx is Megatron's."""
    return next((name for name, (suffix, _) in FORMATS.items() if suffix == path.suffix), "megatron")


def module(name: str) -> Any:
    """Return the module of a format."""
    return import_module(f"isthmus.data.formats.{FORMATS[name][1]}")


def read(path: Path) -> Iterator[Sample]:
    """Return the samples of a file.

    Raises:
        DataError: it does not exist or cannot be read.
    """
    try:
        samples: Iterator[Sample] = module(name_of(path)).read(path)
    except FileNotFoundError as error:
        raise DataError(f"{error.filename or path}: no such file or directory") from None
    return samples
