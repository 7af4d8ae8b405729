"""Operator libraries written in Python.

    library = Library("numpy", "operators by NumPy")

    @library.operator("aten::add.Tensor", dtypes=NUMBERS, strided=True, in_place=True)
    def add(self, other, alpha, out):
        np.add(self, alpha * other, out=out, casting="unsafe")

A function receives the arguments of operators.h by position: tensors as NumPy arrays over the chip's memory (bfloat16
as ml_dtypes.bfloat16), lists as Python lists, absent optional arguments as None; then the outputs. A function with a
parameter ``context`` also receives the :class:`Context`. With ``raw=True`` (for memory that the CPU cannot address,
and for Triton and CUDA kernels) it receives the address of the context, then the flat arguments with tensors as
``tvm_ffi.Tensor``, and returns None or a status.

This module does not need PyTorch.
"""

import ctypes
import difflib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.schema import Argument, Schema

STRIDED, IN_PLACE, MIXED, HOST = 1, 2, 4, 8
OUT_OF_MEMORY, INVALID_ARGUMENT, UNSUPPORTED = 3, 2, 5

# Takes the function that compiles Python frames on this thread, and returns the previous one; None until a compiler
# is imported. A kernel that is called outside of a compiled graph is not to be compiled.
set_frame_compiler: Callable[[Any], Any] | None = None


class Unsupported(Exception):
    """Raised by a kernel for unsupported arguments; the call continues with the operator's next route."""


class Entry(NamedTuple):
    """One operator of a library: overload, dtype mask, flags (operators.h), function, raw."""

    name: str
    dtypes: int
    flags: int
    function: Callable[..., Any]
    raw: bool


class Context(ctypes.Structure):
    """``isthmus_context`` of operators.h: device, stream, seed of random operators."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("device", ctypes.c_int32),
        ("stream", ctypes.c_void_p),
        ("seed", ctypes.c_uint64),
        ("_workspace", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)),
        ("_explain", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)),
        ("_framework", ctypes.c_void_p),
    ]

    def workspace(self, nbytes: int) -> int:
        """Address of scratch memory for this call. Raises MemoryError if out of memory."""
        address = self._workspace(ctypes.addressof(self), nbytes)
        if not address:
            raise MemoryError(f"out of memory for a workspace of {nbytes} bytes")
        return int(address)

    def explain(self, argument: str, reason: str) -> None:
        """Report the argument that made the call fail, and why."""
        self._explain(ctypes.addressof(self), argument.encode(), reason.encode())


class Library:
    """A named set of operators.

    Args:
        name: short name, unique among the libraries of a chip.
        description: one line.
    """

    def __init__(self, name: str, description: str = "") -> None:
        self.name = name
        self.description = description
        self.entries: dict[str, Entry] = {}

    def operator(
        self,
        *names: str,
        dtypes: tuple[str, ...] | str,
        strided: bool = False,
        in_place: bool = False,
        mixed: bool = False,
        raw: bool = False,
        host: bool | None = None,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a function as the kernel of one or more overloads.

        Args:
            names: overloads of the opset, such as ``aten::add.Tensor``.
            dtypes: supported dtypes of all tensors, inputs and outputs.
            strided: supports tensors of any strides.
            in_place: supports outputs that share the memory of inputs.
            mixed: promotes tensors of different dtypes itself.
            raw: called with the raw arguments of operators.h.
            host: computes in the calling thread on CPU addresses; otherwise it enqueues on the context's stream.
                Default: True unless raw.

        Raises:
            ValueError: unknown dtype or operator, or one registered twice.
        """
        allowed = (dtypes,) if isinstance(dtypes, str) else tuple(dtypes)
        flags = (
            STRIDED * strided
            | IN_PLACE * in_place
            | MIXED * mixed
            | HOST * (not raw if host is None else host)
        )

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            for name in names:
                self._add(name, allowed, flags, function, raw)
            return function

        return register

    def _add(
        self, name: str, dtypes: tuple[str, ...], flags: int, function: Callable[..., Any], raw: bool
    ) -> None:
        unknown = [dtype for dtype in dtypes if dtype not in dt.DTYPES]
        if unknown:
            near = difflib.get_close_matches(str(unknown[0]), dt.DTYPES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(dt.DTYPES)}"
            raise ValueError(f"library {self.name}, {name}: unknown dtype {unknown[0]!r}; {hint}")
        if name in self.entries:
            raise ValueError(f"library {self.name}: {name} is registered twice")
        self.entries[name] = Entry(name, dt.mask(dtypes), flags, function, raw)

    def function(self, name: str, schema: Schema | None) -> Callable[..., int | None]:
        """The function that the framework calls: unpacks the arguments and calls the registered function.

        Args:
            name: the overload.
            schema: its schema; None for an operator of an extension, whose function must be raw.

        Raises:
            ValueError: no schema for a function that is not raw, or a function with other parameters.
        """
        entry = self.entries[name]
        wants_context = _check_parameters(f"library {self.name}, {name}", entry, schema)
        if entry.raw:
            return entry.function
        if schema is None:
            raise ValueError(
                f"library {self.name}, {name}: an operator without a schema in the opset needs raw=True"
            )
        unpack = Unpacker(schema)

        def call(context: int, *flat: Any) -> int | None:
            compiles = set_frame_compiler(None) if set_frame_compiler else None
            try:
                arguments = unpack(flat)
                if wants_context:
                    entry.function(*arguments, context=Context.from_address(context))
                else:
                    entry.function(*arguments)
            except Unsupported:
                return UNSUPPORTED
            except MemoryError as error:
                Context.from_address(context).explain("", str(error))
                return OUT_OF_MEMORY
            except Exception as error:
                _add_place(error, entry.function)
                raise
            finally:
                if compiles is not None and set_frame_compiler is not None:
                    set_frame_compiler(compiles)
            return None

        return call


def _check_parameters(where: str, entry: Entry, schema: Schema | None) -> bool:
    """Whether a function declares ``context``. Raises ValueError if its parameters do not match."""
    try:
        signature = inspect.signature(entry.function)
    except (TypeError, ValueError):  # a C function without a signature
        return False
    wants_context = "context" in signature.parameters and not entry.raw
    if schema is None or (entry.raw and any(a.is_list for a in schema.inputs)):  # lists have no fixed length
        return wants_context
    names = [a.name for a in (*schema.inputs, *schema.outputs)]
    expected = ["context", *names] if entry.raw else names
    try:
        signature.bind(*expected, **({"context": 0} if wants_context else {}))
    except TypeError:
        found = [p for p in signature.parameters if entry.raw or p != "context"]
        raise ValueError(
            f"{where}: the function takes {len(found)} parameters ({', '.join(found)}), but is called with "
            f"{len(expected)} ({', '.join(expected)})"
        ) from None
    return wants_context


def _add_place(error: Exception, function: Callable[..., Any]) -> None:
    """Append the type and the kernel's source line to an error's message."""
    file = getattr(getattr(function, "__code__", None), "co_filename", "")
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    if line and all(isinstance(part, str) for part in error.args):
        text = " ".join(error.args)
        error.args = (f"{text}{' ' if text else ''}({type(error).__name__} at {Path(file).name}:{line})",)


class Unpacker:
    """Converts the flat arguments of a call to those of a Python function.

    Args:
        schema: schema of the operator.
    """

    def __init__(self, schema: Schema) -> None:
        self._arguments = (*schema.inputs, *schema.outputs)

    def __call__(self, flat: tuple[Any, ...]) -> list[Any]:
        """The arguments, with lists assembled and tensors as arrays."""
        items = iter(flat)
        return [self._take(argument, items) for argument in self._arguments]

    def _take(self, argument: Argument, items: Iterator[Any]) -> Any:
        value = next(items)
        if not argument.is_list:
            return self._tensor(value) if argument.is_tensor else value
        if value is None:
            return None
        taken = [next(items) for _ in range(value)]
        return [self._tensor(item) for item in taken] if argument.is_tensor else taken

    def _tensor(self, value: Any) -> Any:
        return None if value is None else as_array(value)


_ARRAY_DTYPES: dict[str, np.dtype[Any]] = {name: row.numpy for name, row in dt.DTYPES.items()}


def address_of(tensor: Any) -> int:
    """Address of the first element of a tvm_ffi.Tensor."""
    return int(tensor.data_ptr())


def as_array(tensor: Any) -> np.ndarray[Any, Any]:
    """Writable NumPy view of a tvm_ffi.Tensor in CPU-addressable memory."""
    dtype = _ARRAY_DTYPES[str(tensor.dtype)]
    shape, strides = tensor.shape, tensor.strides
    if 0 in shape:
        return np.empty(shape, dtype)
    span = 1
    for size, stride in zip(shape, strides, strict=True):
        span += (size - 1) * stride
    memory = memory_at(address_of(tensor), span * dtype.itemsize)
    return np.ndarray(shape, dtype, memory, strides=[stride * dtype.itemsize for stride in strides])


_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.restype, _view.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_WRITABLE = 0x200  # PyBUF_WRITE


def memory_at(address: int, nbytes: int) -> memoryview:
    """Writable view of memory, which must outlive it."""
    found: memoryview = _view(address, nbytes, _WRITABLE)
    return found
