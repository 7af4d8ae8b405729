"""Calls of kernels by their C interface: the arguments of operators.h, built with ctypes."""

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from isthmus.drivers.interface import Status
from isthmus.drivers.libraries import LoadedOperator, import_tvm_ffi
from isthmus.opset import dtypes as dt
from isthmus.opset.library import Context

# TVMFFITypeIndex of tvm/ffi/c_api.h.
_NONE, _INT, _BOOL, _FLOAT, _TENSOR, _TEXT = 0, 1, 2, 3, 7, 8
_OBJECT_HEADER_BYTES = 24


class _Union(ctypes.Union):
    _fields_ = [
        ("v_int64", ctypes.c_int64),
        ("v_float64", ctypes.c_double),
        ("v_ptr", ctypes.c_void_p),
        ("v_c_str", ctypes.c_char_p),
    ]


class Any_(ctypes.Structure):
    """``TVMFFIAny``."""

    _anonymous_ = ("value",)
    _fields_ = [("type_index", ctypes.c_int32), ("zero_padding", ctypes.c_uint32), ("value", _Union)]


class _Device(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    """``DLTensor`` of dlpack.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Bytes(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


_CALL = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Any_), ctypes.c_int32, ctypes.POINTER(Any_)
)


class DeviceTensor(NamedTuple):
    """A tensor in device memory: address of its first element (0 if empty), dtype, sizes, strides."""

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class KernelError(Exception):
    """A kernel failed; the message is its error in one line.

    Attributes:
        unsupported: whether it returned ISTHMUS_UNSUPPORTED, which is allowed.
    """

    def __init__(self, message: str, unsupported: bool = False) -> None:
        super().__init__(message)
        self.unsupported = unsupported


class Frame:
    """The arguments of one call in the form of the C interface, with everything they point to."""

    def __init__(self, dlpack_device: tuple[int, int]) -> None:
        self._device = _Device(*dlpack_device)
        self._items: list[Any_] = []
        self._kept: list[Any] = []
        self._contents: list[bytes] = []  # of what is kept, before it is overwritten

    def push(self, value: Any) -> None:
        """Add an argument: DeviceTensor, number, text, None, or a list of those (its length, then its items)."""
        if isinstance(value, (list, tuple)) and not isinstance(value, DeviceTensor):
            self._items.append(Any_(_INT, 0, _Union(v_int64=len(value))))
            for item in value:
                self.push(item)
        else:
            self._items.append(self._item(value))

    def _item(self, value: Any) -> Any_:
        if value is None:
            return Any_(_NONE)
        if isinstance(value, DeviceTensor):
            tensor = self._tensor(value)
            return Any_(_TENSOR, 0, _Union(v_ptr=ctypes.addressof(tensor)))
        if isinstance(value, bool):
            return Any_(_BOOL, 0, _Union(v_int64=value))
        if isinstance(value, int):
            return Any_(_INT, 0, _Union(v_int64=value))
        if isinstance(value, float):
            return Any_(_FLOAT, 0, _Union(v_float64=value))
        text = ctypes.create_string_buffer(str(value).encode())
        self._kept.append(text)
        return Any_(_TEXT, 0, _Union(v_ptr=ctypes.addressof(text)))

    def _tensor(self, placed: DeviceTensor) -> DLTensor:
        integers = _integers(max(len(placed.shape), 1))
        sizes, strides = integers(*placed.shape), integers(*placed.strides)
        tensor = DLTensor(
            placed.address, self._device, len(placed.shape), _data_type(placed.dtype), sizes, strides, 0
        )
        self._kept += (sizes, strides, tensor)
        return tensor

    def call(self, operator: LoadedOperator, context: Context, explained: list[str]) -> None:
        """Call a kernel, then overwrite its arguments and the context: work that it has enqueued may not read them.

        Args:
            explained: receives the messages of ``context.explain``.

        Raises:
            KernelError: the kernel returned an error status, or raised.
        """
        if not self._contents:
            self._contents = [bytes(kept) for kept in self._kept]
        for kept, content in zip(self._kept, self._contents, strict=True):
            ctypes.memmove(ctypes.addressof(kept), content, len(content))
        call, arguments = self._prepare(operator, context, explained)
        try:
            call()
        finally:
            for kept in (*self._kept, arguments, context):
                ctypes.memset(ctypes.addressof(kept), 0, ctypes.sizeof(kept))

    def prepare_call(
        self, operator: LoadedOperator, context: Context, explained: list[str]
    ) -> Callable[[], None]:
        """Prepare a call for repetition while the frame exists; arguments and errors as in :meth:`call`."""
        return self._prepare(operator, context, explained)[0]

    def _prepare(
        self, operator: LoadedOperator, context: Context, explained: list[str]
    ) -> tuple[Callable[[], None], Any]:
        arguments = (Any_ * (len(self._items) + 1))(Any_(_INT), *self._items)
        arguments[0].v_int64 = ctypes.addressof(context)
        result = Any_(_NONE)
        function, count, address = _CALL(operator.call), len(arguments), ctypes.byref(result)

        def call() -> None:
            result.type_index = _NONE
            if function(operator.handle, arguments, count, address) != 0:
                raise KernelError(f"raised {_raised_error()}")
            _check_status(result, explained)

        return call, arguments


def _check_status(result: Any_, explained: list[str]) -> None:
    """Raise KernelError unless the kernel returned nothing or ISTHMUS_OK."""
    status = result.v_int64 if result.type_index == _INT else 0
    if status == Status.OK:
        return
    name = Status(status).name.replace("_", " ").lower() if status in set(Status) else "unknown"
    reason = ": " + "; ".join(explained) if explained else ""
    raise KernelError(f"returned status {status} ({name}){reason}", status == Status.UNSUPPORTED)


def make_context(
    device: int, stream: int, seed: int, workspace: Callable[[int], int], explained: list[str]
) -> tuple[Context, list[Any]]:
    """Make a context; also return the objects that must outlive it.

    Args:
        stream: stream handle; 0 is the default stream.
        workspace: returns the address of n bytes, or 0.
        explained: receives the messages of the kernel.
    """
    context = Context()
    context.struct_size = ctypes.sizeof(Context)
    context.device, context.stream, context.seed = device, stream or None, seed

    def explain(_: int, argument: bytes | None, reason: bytes | None) -> None:
        name, why = ((text or b"").decode(errors="replace") for text in (argument, reason))
        explained.append(f"argument {name}: {why}" if name else why)

    types: dict[str, Any] = {name: kind for name, kind, *_ in Context._fields_}
    callbacks = [types["_workspace"](lambda _, nbytes: workspace(nbytes)), types["_explain"](explain)]
    context._workspace, context._explain = callbacks
    return context, callbacks


@cache
def _integers(count: int) -> type[ctypes.Array[ctypes.c_int64]]:
    return ctypes.c_int64 * count


@cache
def _data_type(dtype: str) -> _DataType:
    return _DataType(*dt.DTYPES[dtype].dlpack, 1)


@cache
def _runtime() -> ctypes.CDLL:
    tvm_ffi = import_tvm_ffi()
    return ctypes.CDLL(str(Path(tvm_ffi.__file__).parent / "lib" / "libtvm_ffi.so"))


def _raised_error() -> str:
    """Return the error that a kernel raised on this thread, as "kind: message"."""
    handle = ctypes.c_void_p()
    _runtime().TVMFFIErrorMoveFromRaised(ctypes.byref(handle))
    if not handle.value:
        return "an error without a message"
    cell = (_Bytes * 2).from_address(handle.value + _OBJECT_HEADER_BYTES)
    kind, message = (ctypes.string_at(part.data, part.size).decode(errors="replace") for part in cell)
    _runtime().TVMFFIObjectDecRef(handle)
    return f"{kind}: {' '.join(message.split())}"
