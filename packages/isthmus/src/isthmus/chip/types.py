"""Typed tensors and storages (``torch.chip.FloatTensor``, ``torch.chip.FloatStorage``).

Legacy types of ``torch.cuda`` that Megatron and old checkpoints still use.
"""

import warnings
from typing import Any

import torch
from torch.storage import _LegacyStorage, _LegacyStorageMeta


class _TypedTensorMeta(type):
    """Makes ``isinstance(x, torch.chip.FloatTensor)`` True for chip tensors of that dtype."""

    dtype: torch.dtype

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        """Name without the module; PyTorch's C++ uses the full name."""
        return cls.__qualname__

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and instance.device.type == "chip"
            and instance.dtype == cls.dtype
        )


_warned = False


def _warn_of_constructor() -> None:
    global _warned
    if not _warned or torch.is_warn_always_enabled():
        _warned = True
        warnings.warn(
            "The torch.chip.*DtypeTensor constructors are no longer recommended. It's best to use methods "
            "such as torch.tensor(data, dtype=*, device='chip') to create tensors.",
            stacklevel=3,
        )


class _TypedTensor(metaclass=_TypedTensorMeta):
    is_chip = True
    is_cuda = False
    is_sparse = False
    layout = torch.strided

    def __new__(cls, *args: Any, device: Any = "chip") -> Any:
        """A tensor of a size (uninitialized) or from a sequence, like ``torch.FloatTensor``."""
        _warn_of_constructor()
        if not args:
            return torch.empty(0, dtype=cls.dtype, device=device)
        if all(isinstance(argument, int) for argument in args):
            return torch.empty(args, dtype=cls.dtype, device=device)
        if len(args) == 1 and isinstance(args[0], torch.Size):
            return torch.empty(args[0], dtype=cls.dtype, device=device)
        if len(args) == 1 and isinstance(args[0], torch.Tensor):
            return args[0].to(device=device, dtype=cls.dtype)
        if len(args) == 1:
            return torch.tensor(args[0], dtype=cls.dtype, device=device)
        raise TypeError(f"{cls.__name__} expected a size or one sequence, got {args!r}")


_DTYPES = {
    "BFloat16": torch.bfloat16,
    "Bool": torch.bool,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "ComplexDouble": torch.complex128,
    "ComplexFloat": torch.complex64,
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Short": torch.int16,
}


def _tensor_type(name: str) -> Any:
    dtype = _DTYPES[name]
    body = {"dtype": dtype, "__module__": "torch.chip", "__doc__": f"{dtype} tensors on the chip."}
    # x.type(type) uses the full name.
    return _TypedTensorMeta(
        f"torch.chip.{name}Tensor", (_TypedTensor,), {**body, "__qualname__": f"{name}Tensor"}
    )


class _ChipStorage(_LegacyStorage):
    """Refuses what would make a storage of the CPU, as ``torch.cuda`` does."""

    @classmethod
    def from_buffer(cls, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("from_buffer: Not available for chip storage")

    @classmethod
    def _new_with_weak_ptr(cls, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("_new_with_weak_ptr: Not available for chip storage")

    @classmethod
    def _new_shared_filename(cls, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("_new_shared_filename: Not available for chip storage")


def _storage_type(name: str) -> Any:
    dtype = _DTYPES[name]
    body = {"dtype": dtype, "_dtype": dtype, "__module__": "torch.chip", "__doc__": f"{dtype} storage."}
    return _LegacyStorageMeta(f"{name}Storage", (_ChipStorage,), body)


BFloat16Tensor, BFloat16Storage = _tensor_type("BFloat16"), _storage_type("BFloat16")
BoolTensor, BoolStorage = _tensor_type("Bool"), _storage_type("Bool")
ByteTensor, ByteStorage = _tensor_type("Byte"), _storage_type("Byte")
CharTensor, CharStorage = _tensor_type("Char"), _storage_type("Char")
DoubleTensor, DoubleStorage = _tensor_type("Double"), _storage_type("Double")
FloatTensor, FloatStorage = _tensor_type("Float"), _storage_type("Float")
HalfTensor, HalfStorage = _tensor_type("Half"), _storage_type("Half")
IntTensor, IntStorage = _tensor_type("Int"), _storage_type("Int")
LongTensor, LongStorage = _tensor_type("Long"), _storage_type("Long")
ShortTensor, ShortStorage = _tensor_type("Short"), _storage_type("Short")
ComplexFloatStorage = _storage_type("ComplexFloat")
ComplexDoubleStorage = _storage_type("ComplexDouble")
