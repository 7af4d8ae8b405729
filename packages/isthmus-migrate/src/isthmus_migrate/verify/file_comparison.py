"""Comparison of the files that runs write into the program's folder."""

import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isthmus_migrate.verify import text_comparison
from isthmus_migrate.verify.answers import Answers, answers
from isthmus_migrate.verify.limits import Array, Reference
from isthmus_migrate.verify.run import Run
from isthmus_migrate.verify.tally import Comparison, Tally, add_arrays

_LARGEST = 1 << 30  # bytes of a file to compare
_CHECKPOINT = "data.pkl"  # member of an archive that torch.save writes
_DEVICE = re.compile(r"(?:cuda|cpu|chip|npu|xpu)(?::\d+)?")
Content = str | dict[str, Array]


class _Unknown(ValueError):
    """A file cannot be compared; the message says why."""


def compare(original: Run, other: Run, references: Sequence[Reference]) -> Comparison:
    """Compare saved files by their content: text, checkpoints of PyTorch, arrays of NumPy; others by their bytes."""
    tally = Tally("saved files")
    allowed = answers(original, other)
    changing = {
        _kind(name) for each in references for name in original.written ^ each.run.written
    }  # named after a time or a process
    for name in sorted(original.written | other.written):
        if name not in original.written or name not in other.written:
            if _kind(name) in changing:
                tally.leave_out("file", "named differently in two runs of the original", name)
            else:
                side = "the original" if name in original.written else "the other run"
                tally.differ(f"{name}: written only by {side}")
            continue
        runs = [(each.run, each.ulps) for each in references if name in each.run.written]
        _add_file(tally, name, original, other, runs, allowed)
    return tally.comparison()


def _add_file(
    tally: Tally,
    name: str,
    original: Run,
    other: Run,
    references: Sequence[tuple[Run, int]],
    allowed: Answers,
) -> None:
    mine, theirs = original.side.root / name, other.side.root / name
    if _are_equal(mine, theirs):
        tally.value(0.0, tally.floor, name)
        return
    try:
        first, second = _read_content(mine), _read_content(theirs)
        noisy = [(_read_content(run.side.root / name), run, ulps) for run, ulps in references]
    except _Unknown as error:
        tally.leave_out("differing file", str(error), name)
        return
    if isinstance(first, str) and isinstance(second, str):
        texts = [
            (text_comparison.Text(text.splitlines(), run.side.root), ulps)
            for text, run, ulps in noisy
            if isinstance(text, str)
        ]
        text_comparison.add_text(
            tally,
            text_comparison.Text(first.splitlines(), original.side.root),
            text_comparison.Text(second.splitlines(), other.side.root),
            texts,
            allowed,
            f"{name}, line {{}}",
        )
    elif isinstance(first, dict) and isinstance(second, dict):
        arrays = [(content, max(1, ulps)) for content, _, ulps in noisy if isinstance(content, dict)]
        add_arrays(tally, first, second, arrays, f" of {name}")
    else:
        tally.differ(f"{name}: files of two formats")


def _are_equal(first: Path, second: Path) -> bool:
    return first.stat().st_size == second.stat().st_size and first.read_bytes() == second.read_bytes()


def _read_content(path: Path) -> Content:
    """Return the text or the arrays of a file.

    Raises:
        _Unknown: neither.
    """
    if path.stat().st_size > _LARGEST:
        raise _Unknown("larger than 1 GiB")
    if path.suffix == ".npy" or zipfile.is_zipfile(path):
        return _arrays(path)
    if path.suffix == ".safetensors":
        return _safetensors(path)
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        raise _Unknown("of an unknown format") from None
    if "\0" in text:
        raise _Unknown("of an unknown format")
    return text


def _arrays(path: Path) -> dict[str, Array]:
    if path.suffix != ".npy":
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
        if any(Path(member).name == _CHECKPOINT for member in members):
            return _checkpoint(path)
        if not all(member.endswith(".npy") for member in members):
            raise _Unknown("of an unknown format")
    try:
        loaded = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
        arrays = {"array": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except ValueError:
        raise _Unknown("with Python objects in it") from None
    return {name: _comparable_array(array) for name, array in arrays.items()}


def _comparable_array(array: Array) -> Array:
    """Return an array in a type that can be compared: float for complex numbers and half precision."""
    if array.dtype.kind == "c":
        return np.stack((array.real, array.imag), -1)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _checkpoint(path: Path) -> dict[str, Array]:
    import torch

    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = str(error).partition("\n")[0].partition(". ")[0]
        raise _Unknown(f"that weights_only=True does not load: {reason}") from None
    return dict(_leaves(loaded, ""))


def _safetensors(path: Path) -> dict[str, Array]:
    try:
        from safetensors.torch import load_file
    except ModuleNotFoundError:
        raise _Unknown("of safetensors, which is not installed") from None
    return dict(_leaves(load_file(path), ""))


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Array]]:
    """Yield the tensors, numbers and texts of nested containers, by their path."""
    import torch

    if isinstance(value, torch.Tensor):
        value = torch.view_as_real(value) if value.is_complex() else value
        low = value.is_floating_point() and value.dtype not in (torch.float32, torch.float64)
        yield name, (value.float() if low else value).detach().numpy()
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _leaves(each, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for index, each in enumerate(value):
            yield from _leaves(each, f"{name}.{index}" if name else str(index))
    elif isinstance(value, (bool, int, float)) or (isinstance(value, str) and not _DEVICE.fullmatch(value)):
        yield name, np.array(value)


def _kind(name: str) -> str:
    return re.sub(r"\d+", "#", name)
