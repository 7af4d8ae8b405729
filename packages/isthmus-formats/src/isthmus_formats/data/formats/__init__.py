"""Files of samples: one module for each format, with ``write`` and ``read``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from isthmus_formats.data import sources
from isthmus_formats.data.records import DataError, UsageError
from isthmus_formats.data.samples import Sample


class Plan(NamedTuple):
    """The facts that a writer needs before the first sample.

    Attributes:
        samples: returns the samples; each call from the first one.
        size: number of samples.
        tokens: of all samples, padding included.
        length: that samples are padded to; 0 if they are not.
        vocabulary: number of tokens of the tokenizer.
        masked: whether the samples have masks.
        packed: whether a sample may have several records, or padding.
        most_records: of a sample, where all samples have one length; else 0.
    """

    samples: Callable[[], Iterator[Sample]]
    size: int
    tokens: int
    length: int
    vocabulary: int
    masked: bool
    packed: bool
    most_records: int = 0


class Format(NamedTuple):
    """A format of samples.

    Attributes:
        suffix: of its files; "" for a prefix.
        module: its module.
        files: what its files' names add to the path.
    """

    suffix: str
    module: str
    files: tuple[str, ...] = ("",)


_MEGATRON = (".bin", ".idx")
FORMATS = {
    "megatron": Format("", "megatron", (".bin", ".idx", "_mask.bin", "_mask.idx")),
    "mindrecord": Format(".mindrecord", "mindrecord", ("", ".db")),
    "safetensors": Format(".safetensors", "tensors"),
    "parquet": Format(".parquet", "tables"),
    "jsonl": Format(".jsonl", "tables"),
}


_READ_ONLY = {".arrow": "arrow", ".json": "json"}  # tables, like Parquet and JSON lines


def _of_suffix(path: Path) -> str:
    """Return the format of a file by its suffix; a prefix, .bin or .idx is Megatron's."""
    return next((name for name, each in FORMATS.items() if each.suffix == path.suffix), "megatron")


def name_of(path: Path) -> str:
    """Return the format of a file to read.

    By its suffix; MindRecord by its content, since MindSpore names files without a suffix, and parts x.mindrecord0.
    """
    if path.is_dir():
        return "arrow"
    found = _READ_ONLY.get(path.suffix, _of_suffix(path))
    return "mindrecord" if found == "megatron" and module("mindrecord").parts(path)[0] else found


def choose_format(path: Path, name: str) -> str:
    """Return the format of a file to write.

    Args:
        path: the file, or Megatron's prefix.
        name: its format; "" to tell it from the suffix.

    Raises:
        UsageError: the suffix is unknown, or not that of the format.
    """
    if not path.name:
        raise UsageError(f"{path}: a folder; give the name of a file")
    if name == "megatron" or (not name and path.suffix in ("", *_MEGATRON)):
        return "megatron"
    found = _of_suffix(path)
    if found == "megatron" or name not in ("", found):
        known = (each.suffix for each in FORMATS.values() if each.suffix)
        expected = FORMATS[name].suffix if name else ", ".join(known)
        raise UsageError(
            f"{path}: unknown suffix {path.suffix!r}; expected {expected}, or none and --to megatron"
        )
    return found


def prefix(path: Path) -> Path:
    """Return a path without Megatron's suffixes."""
    return path.with_suffix("") if path.suffix in _MEGATRON else path


def files(path: Path, name: str) -> list[Path]:
    """Return the files that an output may have."""
    return [prefix(path).with_name(prefix(path).name + each) for each in FORMATS[name].files]


def module(name: str) -> Any:
    """Return the module of a format."""
    return import_module(f"isthmus_formats.data.formats.{FORMATS[name].module}")


def read(path: Path) -> Iterator[Sample]:
    """Return the samples of a file, or of the Arrow files of a folder.

    Raises:
        DataError: it does not exist or cannot be read.
    """
    name = name_of(path)
    if name in _READ_ONLY.values():
        tables = module("parquet")
        return itertools.chain.from_iterable(tables.read(each) for each in sources.inputs([path]))
    try:
        samples: Iterator[Sample] = module(name).read(path)
    except FileNotFoundError as error:
        if path.exists() and path.suffix not in _MEGATRON:
            known = ", ".join([*(each.suffix for each in FORMATS.values() if each.suffix), *_READ_ONLY])
            raise DataError(f"{path}: unknown format; expected {known}, or a prefix of Megatron's") from None
        absent = path if path.suffix not in ("", *_MEGATRON) else error.filename or path
        raise DataError(f"{absent}: no such file or directory") from None
    return samples
