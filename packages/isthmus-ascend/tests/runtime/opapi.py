"""Calls of libopapi.so's functions from Python, through their C interface."""

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from isthmus_ascend.environment import LIBRARIES, operators
from isthmus_ascend.generate.table import Row, rows
from tests.runtime.meaning import copied

LIBRARY = operators() / "libopapi.so"
ROWS = {row.name: row for row in rows()}
DATA_TYPES = {
    torch.float32: 0,
    torch.float16: 1,
    torch.int8: 2,
    torch.int32: 3,
    torch.uint8: 4,
    torch.int16: 6,
    torch.int64: 9,
    torch.float64: 11,
    torch.bool: 12,
    torch.complex64: 16,
    torch.complex128: 17,
    torch.bfloat16: 27,
    torch.float8_e5m2: 35,
    torch.float8_e4m3fn: 36,
    torch.float8_e8m0fnu: 37,
}
ABSENT = {
    "int": 0, "int8": 0, "int32": 0, "dtype": torch.float32, "bool": False, "double": 0.0, "float": 0.0, "string": ""
}  # fmt: skip
C_TYPES = {
    "int": ctypes.c_int64,
    "int8": ctypes.c_int8,
    "int32": ctypes.c_int32,
    "dtype": ctypes.c_int32,
    "bool": ctypes.c_bool,
    "double": ctypes.c_double,
    "float": ctypes.c_float,
    "string": ctypes.c_char_p,
}


def library() -> ctypes.CDLL:
    """Return libopapi.so; torch, which it stands on, is loaded already.

    It accepts what a card refuses in this process: numbers are compared in float32 and float64, which cards lack for
    many functions. test_strict.py has processes of its own.
    """
    given = os.environ.get("ISTHMUS_ASCEND_STRICT")
    os.environ["ISTHMUS_ASCEND_STRICT"] = given or "0"
    try:
        ctypes.CDLL(str(LIBRARIES / "libascendcl.so")).isthmus_ascend_strict()  # reads the variable once
    finally:
        if given is None:
            del os.environ["ISTHMUS_ASCEND_STRICT"]
    return ctypes.CDLL(str(LIBRARY))


class Objects:
    """The opaque objects of one call, by the kinds of isthmus_ascend.generate.table; destroyed together."""

    def __init__(self) -> None:
        self.library = library()
        self.made: list[tuple[str, int]] = []
        self.values: list[Any] = []  # the arguments of the call

    def _create(self, what: str, *arguments: Any, owned: bool = True) -> ctypes.c_void_p:
        create = getattr(self.library, f"aclCreate{what}")
        create.restype = ctypes.c_void_p
        address = create(*arguments)
        if address is None:
            raise ValueError(f"aclCreate{what} returned null")
        if owned:
            self.made.append((what, address))
        return ctypes.c_void_p(address)

    def tensor(self, tensor: torch.Tensor | None, owned: bool = True) -> ctypes.c_void_p:
        if tensor is None:
            return ctypes.c_void_p(None)
        count = tensor.dim()
        dims = (ctypes.c_int64 * count)(*tensor.shape)
        strides = (ctypes.c_int64 * count)(*tensor.stride())
        storage = (ctypes.c_int64 * 1)(tensor.untyped_storage().nbytes() // tensor.element_size())
        return self._create(
            "Tensor", dims, ctypes.c_uint64(count), ctypes.c_int(DATA_TYPES[tensor.dtype]), strides,
            ctypes.c_int64(tensor.storage_offset()), ctypes.c_int(2), storage, ctypes.c_uint64(1),
            ctypes.c_void_p(tensor.untyped_storage().data_ptr()), owned=owned,
        )  # fmt: skip

    def scalar(self, value: float | int | bool | complex | None, owned: bool = True) -> ctypes.c_void_p:
        if value is None:
            return ctypes.c_void_p(None)
        if isinstance(value, bool):
            return self._create("Scalar", ctypes.byref(ctypes.c_bool(value)), ctypes.c_int(12), owned=owned)
        if isinstance(value, int):
            return self._create("Scalar", ctypes.byref(ctypes.c_int64(value)), ctypes.c_int(9), owned=owned)
        if isinstance(value, complex):
            parts = (ctypes.c_double * 2)(value.real, value.imag)
            return self._create("Scalar", parts, ctypes.c_int(17), owned=owned)
        return self._create("Scalar", ctypes.byref(ctypes.c_double(value)), ctypes.c_int(11), owned=owned)

    def argument(self, kind: str, value: Any) -> Any:
        """Return the C value of an argument of this kind."""
        if kind == "tensor":
            return self.tensor(value)
        if kind == "scalar":
            return self.scalar(value)
        if kind == "dtype":
            return ctypes.c_int32(DATA_TYPES[value])
        if kind == "string":
            return ctypes.c_char_p(value.encode())
        if kind in C_TYPES:
            return C_TYPES[kind](value)
        if value is None:
            return ctypes.c_void_p(None)
        if kind in ("tensors", "scalars"):
            make = self.tensor if kind == "tensors" else self.scalar
            elements = (ctypes.c_void_p * len(value))(
                *(make(element, owned=False).value for element in value)
            )
            return self._create(f"{kind[:-1].capitalize()}List", elements, ctypes.c_uint64(len(value)))
        what, element = {
            "ints": ("IntArray", ctypes.c_int64),
            "floats": ("FloatArray", ctypes.c_float),
            "bools": ("BoolArray", ctypes.c_bool),
        }[kind]
        return self._create(what, (element * len(value))(*value), ctypes.c_uint64(len(value)))

    def destroy(self) -> None:
        """Destroy all, as a caller does between the phases."""
        while self.made:
            what, address = self.made.pop()
            getattr(self.library, f"aclDestroy{what}")(ctypes.c_void_p(address))


@contextmanager
def objects() -> Iterator[Objects]:
    """Destroy the objects at the end."""
    made = Objects()
    try:
        yield made
    finally:
        made.destroy()


def prepare(made: Objects, row: Row, arguments: Sequence[Any]) -> tuple[int, ctypes.c_void_p]:
    """Call phase one; return its status and the executor."""
    phase = getattr(made.library, f"aclnn{row.name}GetWorkspaceSize")
    values = [made.argument(kind, value) for (kind, _), value in zip(row.parameters, arguments, strict=True)]
    made.values = values
    size, executor = ctypes.c_uint64(1), ctypes.c_void_p()
    status = phase(*values, ctypes.byref(size), ctypes.byref(executor))
    assert status != 0 or size.value == 0
    return status, executor


def start() -> None:
    """Initialise libascendcl.so and choose its first device."""
    runtime = ctypes.CDLL(str(LIBRARIES / "libascendcl.so"))
    assert runtime.aclInit(None) in (0, 100002)
    assert runtime.aclrtSetDevice(0) == 0


def message() -> str:
    """Return the last error message of this thread."""
    recent = ctypes.CDLL(str(LIBRARIES / "libascendcl.so")).aclGetRecentErrMsg
    recent.restype = ctypes.c_char_p
    return (recent() or b"").decode()


def view_shape(made: Objects, tensor: ctypes.c_void_p) -> list[int]:
    """Return the shape of an aclTensor; its array, which C++ callers delete, stays."""
    dims, count = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_uint64()
    assert made.library.aclGetViewShape(tensor, ctypes.byref(dims), ctypes.byref(count)) == 0
    return dims[: count.value]


def call(name: str, *arguments: Any, shapes: Sequence[str] = ()) -> dict[str, list[int]]:
    """Call both phases and wait for the device.

    The objects are destroyed in between, as callers may, unless `shapes` names parameters whose shapes are known
    only after the second phase; these are returned.

    Raises:
        ValueError: with the message of the runtime, for a status other than 0.
    """
    start()
    row = ROWS[name]
    found = {}
    with objects() as made:
        status, executor = prepare(made, row, arguments)
        tensors = dict(zip((name for _, name in row.parameters), made.values, strict=True))
        if not shapes:
            made.destroy()
        if status == 0:
            phase = getattr(made.library, f"aclnn{name}")
            status = phase(ctypes.c_void_p(None), ctypes.c_uint64(0), executor, ctypes.c_void_p(None))
        if status != 0:
            raise ValueError(f"{status}: {message()}")
        status = ctypes.CDLL(str(LIBRARIES / "libascendcl.so")).aclrtSynchronizeDevice()
        if status != 0:
            raise ValueError(f"{status}: {message()}")
        for parameter in shapes:
            found[parameter] = view_shape(made, tensors[parameter])
    return found


def named(name: str, **arguments: Any) -> None:
    """Call a function by the names of its parameters; those left out are null, 0 or empty."""
    call(name, *in_order(ROWS[name], arguments))


def in_order(row: Row, arguments: dict[str, Any]) -> list[Any]:
    """Return a row's arguments from those of some names; the others are null, 0 or empty."""
    assert arguments.keys() <= {parameter for _, parameter in row.parameters}
    return [arguments.get(parameter, ABSENT.get(kind)) for kind, parameter in row.parameters]


def check(name: str, expected: dict[str, Any], tolerance: float = 1e-5, **inputs: Any) -> None:
    """Call a function by name and compare what it writes; float64 inputs and results become float32.

    A result that is also an input is written in place. Other results are strided memory.
    """
    given = {
        key: copied(single(value)) if key in expected else single(value) for key, value in inputs.items()
    }
    for key, value in expected.items():
        given.setdefault(key, memory(value))
    named(name, **given)
    for key, value in expected.items():
        for one, other in zip(*(x if isinstance(x, list) else [x] for x in (given[key], value)), strict=True):
            torch.testing.assert_close(
                one,
                other.to(one.dtype),
                rtol=tolerance,
                atol=tolerance,
                msg=lambda text, key=key: f"{key}: {text}",
            )


def gradients(y: Any, dy: Any, **leaves: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the gradients of leaves in float64, by the names of the results that have them."""
    dy = [one.double() for one in dy] if isinstance(dy, tuple) else dy.double()
    return dict(zip(leaves, torch.autograd.grad(y, list(leaves.values()), dy), strict=True))


def single(value: Any) -> Any:
    """Return a float64 tensor in float32 and without its gradient; of a list, those of its elements."""
    if isinstance(value, list):
        return [single(element) for element in value]
    is_double = isinstance(value, torch.Tensor) and value.dtype == torch.float64
    return value.detach().float() if is_double else value


def memory(value: Any) -> Any:
    """Return memory for a result like this: every second element of a larger one."""
    if isinstance(value, list):
        return [memory(element) for element in value]
    dtype = torch.float32 if value.dtype == torch.float64 else value.dtype
    return torch.ones(*value.shape, 2).to(dtype)[..., 1]
