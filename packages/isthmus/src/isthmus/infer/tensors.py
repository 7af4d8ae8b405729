"""Files of named tensors, random inputs, and the comparison of outputs."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from isthmus.chip.compile.package import Input, kind_of
from isthmus.infer.model import InferError
from isthmus_common.files import write_file


def require_format(path: Path) -> None:
    """Raise an error if the name of a file is not that of a format of tensors."""
    if path.suffix not in (".npz", ".safetensors"):
        raise InferError(f"{path}: unknown format; expected .npz or .safetensors")


def read(path: Path) -> dict[str, Tensor]:
    """Return the tensors of an ``.npz`` or ``.safetensors`` file, on the CPU.

    Raises:
        InferError: another format, or malformed, or it cannot be read. Pickled objects are refused.
    """
    import safetensors.torch

    require_format(path)
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load(path.read_bytes())
        with np.load(path, allow_pickle=False) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except OSError as error:
        raise InferError(f"{path}: {error.strerror or error}; give a file of tensors") from None
    except Exception as error:  # NumPy's are of many types, such as EOFError
        what = (str(error) or type(error).__name__).splitlines()[0]
        raise InferError(f"{path}: cannot be read as tensors: {what}") from None


def write(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors to an ``.npz`` or ``.safetensors`` file, atomically.

    Raises:
        InferError: another format, one of the tensors has a dtype that it does not have, or it cannot be written.
    """
    import safetensors.torch

    require_format(path)
    on_cpu = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    data = safetensors.torch.save(on_cpu) if path.suffix == ".safetensors" else _npz(path, on_cpu)
    try:
        write_file(path, data)
    except OSError as error:
        raise InferError(f"{path}: {error.strerror}; give a writable path") from None


def _npz(path: Path, tensors: dict[str, Tensor]) -> bytes:
    stream = io.BytesIO()
    try:
        arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in tensors.items()}
    except TypeError as error:
        raise InferError(f"{path}: {error}; write .safetensors") from None
    np.savez(stream, **arrays)
    return stream.getvalue()


def with_batch(inputs: list[Input], batch: int) -> list[Input]:
    """Return the inputs with another batch size: their first dimension that is dynamic, wherever its size occurs.

    Raises:
        InferError: no input has a dynamic first dimension.
    """
    symbol = next((each.symbols[0] for each in inputs if each.symbols and each.symbols[0]), "")
    if not symbol:
        raise InferError("--batch: the model's first dimension is fixed; export it with dynamic_shapes")
    return [
        each._replace(
            shape=[batch if s == symbol else n for n, s in zip(each.shape, each.symbols, strict=True)]
        )
        for each in inputs
    ]


def random(inputs: list[Input], seed: int) -> list[Tensor]:
    """Return random CPU tensors: normal floating-point numbers; integers and bools that are 0 or 1.

    Raises:
        InferError: one is too large.
    """
    generator = torch.Generator().manual_seed(seed)
    return [_random(each, generator) for each in inputs]


def _random(wanted: Input, generator: torch.Generator) -> Tensor:
    dtype: torch.dtype = getattr(torch, wanted.dtype)
    try:
        if dtype.is_floating_point or dtype.is_complex:
            drawn = torch.complex64 if dtype.is_complex else torch.float32
            return torch.randn(wanted.shape, generator=generator, dtype=drawn).to(dtype)
        return torch.randint(0, 2, wanted.shape, generator=generator).to(dtype)
    except RuntimeError as error:
        raise InferError.from_error(f"input {wanted.name} {wanted.shape}", error) from error


def select(tensors: dict[str, Tensor], inputs: list[Input] | None, path: Path) -> list[Tensor]:
    """Return a model's inputs from a file, in order.

    Raises:
        InferError: one is missing, or has another dtype or shape than the model takes; or a name is unknown.
    """
    if inputs is None:  # the order of the file
        return list(tensors.values())
    unknown = sorted(set(tensors) - {each.name for each in inputs})
    if unknown:
        raise InferError(f"{path}: the model has no input {unknown[0]!r}; it takes {_names(inputs)}")
    return [_checked(tensors, each, path) for each in inputs]


def _checked(tensors: dict[str, Tensor], wanted: Input, path: Path) -> Tensor:
    if wanted.name not in tensors:
        raise InferError(f"{path}: no tensor {wanted.name!r}, which the model takes")
    tensor = tensors[wanted.name]
    if not wanted.accepts(tensor):
        raise InferError(f"{path}: {wanted.name} is {kind_of(tensor)}; the model takes {wanted.kind()}")
    return tensor


def _names(inputs: list[Input]) -> str:
    return ", ".join(each.name for each in inputs)


class Difference(NamedTuple):
    """An output against its reference.

    Attributes:
        name: of the output.
        largest: absolute error; infinite where only one of them is NaN.
        reason: why it is beyond the tolerance, or ``""``.
    """

    name: str
    largest: float
    reason: str


def compare(
    outputs: dict[str, Tensor],
    reference: dict[str, Tensor],
    path: Path,
    rtol: float | None,
    atol: float | None,
) -> list[Difference]:
    """Compare outputs with those of a file, all on the CPU.

    Args:
        outputs: of the model.
        reference: of the file.
        path: of the file.
        rtol: relative tolerance; with None those of ``torch.testing.assert_close`` for the dtype.
        atol: absolute tolerance, likewise.

    Raises:
        InferError: the file lacks an output.
    """
    if missing := sorted(set(outputs) - set(reference)):
        raise InferError(
            f"{path}: no tensor {missing[0]!r}, which the model returns; "
            f"the file has {', '.join(sorted(reference)) or 'none'}"
        )
    return [_difference(name, tensor, reference[name], rtol, atol) for name, tensor in outputs.items()]


def _difference(
    name: str, found: Tensor, wanted: Tensor, rtol: float | None, atol: float | None
) -> Difference:
    reason = ""
    try:
        torch.testing.assert_close(found, wanted, rtol=rtol, atol=atol, equal_nan=True, check_dtype=False)
    except AssertionError as error:
        reason = " ".join(str(error).split())
    if found.shape != wanted.shape:
        return Difference(name, math.inf, reason)
    differ = (found != wanted) & ~(found.isnan() & wanted.isnan())
    errors = (found[differ].double() - wanted[differ].double()).abs().nan_to_num(math.inf)
    return Difference(name, float(errors.max()) if errors.numel() else 0.0, reason)
