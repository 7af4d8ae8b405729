"""isthmus.conformance.calling: what a kernel gets, and for how long."""

import ctypes

from isthmus.conformance.calling import Any_, DeviceTensor, DLTensor, Frame, make_context
from isthmus.drivers.libraries import LoadedOperator
from isthmus.opset.library import Context

FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Any_), ctypes.c_int32, ctypes.POINTER(Any_)
)
TENSOR = DeviceTensor(4096, "float32", (2, 3), (3, 1))


class Kernel:
    """A kernel that keeps the address of its arguments, and what it read at each call."""

    def __init__(self) -> None:
        self.read: list[tuple[object, ...]] = []
        self._entry = FUNCTION(self._call)
        address = ctypes.cast(self._entry, ctypes.c_void_p).value or 0
        self.operator = LoadedOperator("aten::relu", 0, 0, address, 0)

    def _call(self, handle: int, arguments: "ctypes._Pointer[Any_]", count: int, result: object) -> int:
        self.arguments = arguments
        self.context = Context.from_address(arguments[0].v_int64)
        self.tensor = DLTensor.from_address(arguments[1].v_ptr)
        shape = ctypes.cast(self.tensor.shape, ctypes.c_void_p).value or 0
        self.shape = (ctypes.c_int64 * 2).from_address(shape)
        self.read.append(self.now())
        return 0

    def now(self) -> tuple[object, ...]:
        """The values that it finds at the addresses."""
        return self.context.seed, self.tensor.data, self.tensor.ndim, *self.shape, self.arguments[2].v_int64


def test_arguments_are_gone_when_the_call_returns() -> None:
    kernel, frame = Kernel(), Frame((1, 0))
    frame.push(TENSOR)
    frame.push(7)
    for seed in (5, 6):  # a frame serves more than one call
        context, kept = make_context(0, 0, seed, lambda nbytes: 0, [])
        frame.call(kernel.operator, context, [])
        assert kernel.now() == (0, None, 0, 0, 0, 0)
        del kept
    assert kernel.read == [(seed, 4096, 2, 2, 3, 7) for seed in (5, 6)]
