"""Files of torch.save, read without executing anything in them."""

from __future__ import annotations

import contextlib
import io
import pickle
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import torch
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals, skip_data

from isthmus_common.text import first_line
from isthmus_formats.checkpoint.containers.file_tensors import Loaded, Readable, Stored, Unsupported
from isthmus_formats.checkpoint.errors import CheckpointError

# Modules whose classes describe a training run. Their objects are read as Inert: nothing of them is executed.
_DESCRIPTIONS = (
    "argparse",
    "megatron",
    "deepspeed",
    "types",
    "omegaconf",
    "enum",
    "signal",
    "transformers",
    "internlm",
)
_GETATTR = "builtins.getattr"


class Inert:
    """Stands for an object of a class that is not loaded."""

    def __new__(cls, *_: object, **__: object) -> Inert:
        """Ignore the arguments."""
        return super().__new__(cls)

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        if isinstance(state, dict):
            self.__dict__.update({name: value for name, value in state.items() if isinstance(name, str)})


def _member(kind: object, name: str) -> Inert:
    """Return what stands for a member of an enumeration, which Python 3.11.0 to 3.11.3 pickles by getattr."""
    if not isinstance(kind, type) or not issubclass(kind, Inert):
        raise pickle.UnpicklingError(f"{_GETATTR} of {kind!r}")
    return kind()


def load(file: Path | IO[bytes], *, allow_pickle: bool = False) -> Any:
    """Load a file without the data of its tensors, which keep their offsets.

    Args:
        file: the file.
        allow_pickle: execute what the file asks for.

    Raises:
        CheckpointError: the file is damaged, or asks for code to be executed.
    """
    name = file if isinstance(file, Path) else getattr(file, "name", "a file")
    unsafe = [] if allow_pickle else _unsafe_globals(file, name)
    known = {*_DESCRIPTIONS, _GETATTR}
    if refused := [each for each in unsafe if not known & {each, each.partition(".")[0]}]:
        raise CheckpointError(
            f"{name}: reading it would execute code ({refused[0]}); if you trust its author, give --allow-pickle"
        )
    inert: list[Any] = [
        (_member if each == _GETATTR else type(each.rpartition(".")[2], (Inert,), {}), each)
        for each in unsafe
    ]
    try:
        with safe_globals(inert), _without_checks_of_sparse_tensors():
            return torch.load(file, weights_only=not allow_pickle, map_location="meta")
    except Exception as error:
        raise _damage_error(name, error) from None


@contextlib.contextmanager
def _without_checks_of_sparse_tensors() -> Iterator[None]:
    """Let torch.load leave the indices of sparse tensors unread, since 2.14: on the device meta they have no data."""
    utilities: Any = torch._utils
    original = utilities._validate_loaded_sparse_tensors
    utilities._validate_loaded_sparse_tensors = lambda **_: original()  # as for files that are trusted
    try:
        yield
    finally:
        utilities._validate_loaded_sparse_tensors = original


def read(path: Path, *, allow_pickle: bool = False) -> tuple[dict[str, Readable], Any]:
    """Return the tensors of a file by their paths in nested dictionaries, such as ``"model/norm.weight"``.

    Args:
        path: the file.
        allow_pickle: execute what the file asks for.

    Returns:
        The tensors, and the whole content, whose tensors have no data.

    Raises:
        CheckpointError: the file is damaged, or asks for code to be executed.
    """
    with path.open("rb") as stream:
        zipped = stream.read(2) == b"PK"
    if not zipped:
        return _read_old(path, allow_pickle)
    _check_zip(path)
    content = load(path, allow_pickle=allow_pickle)
    return {name: _readable(path, name, tensor) for name, tensor in _tensors(content)}, content


def read_blob(path: Path, offset: int, length: int) -> torch.Tensor:
    """Return the tensor that a part of a file holds as torch.save wrote it."""
    with path.open("rb") as stream:
        stream.seek(offset)
        blob = io.BytesIO(stream.read(length))
    blob.name = str(path)
    try:
        return torch.load(blob, weights_only=True, map_location="cpu")
    except Exception as error:
        raise CheckpointError(f"{path}: damaged at byte {offset}: {first_line(error)}") from None


def create(
    path: Path,
    tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]],
    more: Mapping[str, object] | None = None,
    *,
    bare: bool = False,
) -> dict[str, Stored]:
    """Write a file whose data is a hole, and return its tensors.

    Args:
        path: the file.
        tensors: data type and shape by path in nested dictionaries.
        more: further entries.
        bare: the file holds its only tensor without a dictionary.
    """
    content: dict[str, Any] = dict(more or {})
    for name, (dtype, shape) in tensors.items():
        *folders, last = name.split("/")
        at = content
        for folder in folders:
            at = at.setdefault(folder, {})
        at[last] = torch.empty(shape, dtype=dtype)  # memory that is never touched
    try:
        with skip_data():
            torch.save(next(iter(content.values())) if bare else content, path)
    except RuntimeError as error:
        raise CheckpointError(f"{path}: cannot be written: {first_line(error)}") from None
    return {name: _stored_tensor(path, tensor) for name, tensor in _tensors(load(path))}


def _unsafe_globals(file: Path | IO[bytes], name: object) -> list[str]:
    try:
        return get_unsafe_globals_in_checkpoint(file)
    except Exception as error:
        raise _damage_error(name, error) from None
    finally:
        if not isinstance(file, Path):
            file.seek(0)


def _read_old(path: Path, allow_pickle: bool) -> tuple[dict[str, Readable], Any]:
    """Read a file from before PyTorch 1.6, which must be loaded as a whole."""
    try:
        with warnings.catch_warnings(action="ignore"):  # warnings about pickles that the error is about
            content = torch.load(path, weights_only=not allow_pickle, map_location="cpu")
    except pickle.UnpicklingError as error:
        remedy = (
            "; if you trust its author, give --allow-pickle"
            if "unsupported global" in str(error).lower()
            else ""
        )
        raise CheckpointError(
            f"{path}: truncated, or reading it would execute code: {_reason(error)}{remedy}"
        ) from None
    except Exception as error:
        raise _damage_error(path, error) from None
    return {name: Loaded(tensor) for name, tensor in _tensors(content)}, content


def _check_zip(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            packed = [each.filename for each in archive.infolist() if each.compress_type]
    except Exception as error:
        raise _damage_error(path, error) from None
    if packed:
        raise CheckpointError(f"{path}: {packed[0]} is compressed, which torch.save does not do")


def _tensors(content: Any, path: Sequence[str] = ()) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(content, torch.Tensor):
        yield "/".join(path), content
    elif isinstance(content, dict):
        for name, value in content.items():
            yield from _tensors(value, (*path, str(name)))
    elif isinstance(content, list | tuple):
        for index, value in enumerate(content):
            yield from _tensors(value, (*path, str(index)))


def _readable(path: Path, name: str, tensor: torch.Tensor) -> Readable:
    if tensor.layout != torch.strided or tensor.is_quantized:
        kind = str(tensor.layout if tensor.layout != torch.strided else tensor.dtype)
        return Unsupported(path, name, kind.removeprefix("torch."), tuple(tensor.shape))
    return _stored_tensor(path, tensor)


def _stored_tensor(path: Path, tensor: torch.Tensor) -> Stored:
    offset: int = getattr(tensor.untyped_storage(), "_checkpoint_offset", 0)
    width = tensor.dtype.itemsize
    start = offset + int(tensor.storage_offset()) * width
    span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    elements = int(span) if tensor.numel() else 0
    stride = None if tensor.is_contiguous() else tuple(tensor.stride())
    return Stored(path, tensor.dtype, tuple(tensor.shape), ((start, elements * width),), stride)


def _damage_error(name: object, error: Exception) -> CheckpointError:
    """Return the error of a file, from whatever a truncated or damaged one leads to."""
    return CheckpointError(
        f"{name}: not a file of torch.save, or damaged ({first_line(error)}); copy it again"
    )


def _reason(error: BaseException) -> str:
    return next(
        (line for line in str(error).splitlines() if "GLOBAL" in line or "Unsupported" in line), ""
    ).strip()[:200]
