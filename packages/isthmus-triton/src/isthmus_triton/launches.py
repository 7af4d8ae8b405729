"""Launches of one compiled kernel, on tensors of the CPU and of the host chip."""

from __future__ import annotations

import contextlib
import ctypes
import struct
from collections.abc import Callable, Iterator
from typing import Any

import torch

from isthmus_triton import build, devices, kernel
from isthmus_triton.analysis import Sharing
from isthmus_triton.debug.faults import KernelFault
from isthmus_triton.debug.launch import Debugger
from isthmus_triton.host import CHECKED_HOST

# Formats of struct for scalars; each takes 8 bytes. Floats narrower than 64 bits come as float.
_FORMATS = {
    **dict.fromkeys(("i1", "i8", "i16", "i32", "i64"), "q"),
    **dict.fromkeys(("u1", "u8", "u16", "u32", "u64"), "Q"),
    **dict.fromkeys(("fp16", "bf16", "fp32", "f16", "f32"), "f4x"),
    **dict.fromkeys(("fp64", "f64"), "d"),
}


# Called before each launch with the launcher, the grid, the program and the arguments; for comparisons.
observer: Callable[[Launcher, tuple[int, int, int], Program, Any], None] | None = None


class Program:
    """A loaded library.

    Attributes:
        address: of the function that runs a launch, given the bytes of its call.
        wraps: whether 32-bit addresses of a launch may wrap around, given the same; see :mod:`isthmus_triton.host`.
    """

    def __init__(self, binary: bytes) -> None:
        self._library = build.load(binary)
        self._run = self._library.run
        self._run.argtypes, self._run.restype = [ctypes.c_char_p], ctypes.c_char_p
        self.address = ctypes.cast(self._run, ctypes.c_void_p).value or 0
        self.wraps: Callable[[bytes], int] = getattr(self._library, "wraps", lambda call: 0)

    def run(self, call: bytes) -> None:
        """Run a launch.

        Raises:
            RuntimeError: a program failed.
        """
        failure = self._run(call)
        if failure is not None:
            raise RuntimeError(failure.decode(errors="replace"))


class Launcher:
    """Launches of one compiled kernel.

    Args:
        source: the kernel and its signature.
        metadata: what the compiler noted.
        is_in_job: tensors of the CPU are refused, as on a GPU.

    Attributes:
        names: of the kernel's parameters.
        function: the kernel.
    """

    def __init__(self, source: Any, metadata: Any, is_in_job: bool = False) -> None:
        self._is_in_job = is_in_job
        self._name = f"triton::{metadata.name}"
        self._ttir, self._fuses = metadata.ttir, metadata.enable_fp_fusion
        self._debugger: Debugger | None = None
        self.names = list(source.signature)
        self.function = getattr(source, "fn", None)
        constants = {
            key if isinstance(key, tuple) else (self.names.index(key),)
            for key in getattr(source, "constants", {})
        }
        self._parameters = list(_parameters(source.signature.values(), constants))
        places = (
            [at for at, each in enumerate(source.fn.params) if not each.is_constexpr]
            if hasattr(source, "fn")
            else []
        )
        self._places = [(path[0], path[1:]) for path, _ in self._parameters]
        self._pointers = [(at, path[0]) for at, (path, form) in enumerate(self._parameters) if form == "P"]
        self._without_constants = {place: at for at, place in enumerate(places)}
        self._struct = struct.Struct("qqq" + "".join(form for _, form in self._parameters))
        self._variants: dict[tuple[Sharing, bool], Program] = {}
        self._wraps = metadata.wraps
        self._may_fail = "tt.assert" in metadata.ttir
        if metadata.checks_accesses:
            self._debugger = self._new_debugger()

    def _new_debugger(self) -> Debugger:
        paths = (path for path, _ in self._parameters)
        names = [self.names[at] + "".join(f"[{each}]" for each in rest) for at, *rest in paths]
        return Debugger(self._name.removeprefix("triton::"), self._ttir, names)

    def __call__(
        self, x: int, y: int, z: int, stream: int, program: Program, packed: Any, launch_metadata: Any, enter: Any,
        exit: Any, *arguments: Any,
    ) -> None:  # fmt: skip
        """Enqueue the programs of a grid on the stream of their chip; run them at once on tensors of the CPU."""
        if len(arguments) == len(self._without_constants) < len(self.names):  # FlagGems passes no constants
            places = self._without_constants
            arguments = tuple(
                arguments[places[at]] if at in places else None for at in range(len(self.names))
            )
        if observer is not None:
            observer(self, (x, y, z), program, arguments)
        values: list[Any] = []
        tensors: list[torch.Tensor] = []
        addresses, are_on_cpu = 0, True
        for place, path in self._places:
            values.append(_part(arguments[place], path) if path else arguments[place])
        for at, place in self._pointers:
            value = values[at]
            if type(value) is torch.Tensor and value.is_cpu and not self._is_in_job:
                values[at] = address = value.data_ptr()
                if address:
                    tensors.append(value)
            else:
                are_on_cpu = False
                values[at] = address = self._address(value, tensors, place)
            addresses += address != 0
        if enter is not None:
            enter(launch_metadata)
        if x * y * z > 0:
            if self._debugger is None:
                call = self._struct.pack(x, y, z, *values)
                wraps = self._wraps == "sometimes" and program.wraps(call) != 0
                self._run(program, call, tensors, None if are_on_cpu else addresses, wraps)
            else:
                self._debug(self._debugger, program, (x, y, z), arguments)
        if exit is not None:
            exit(launch_metadata)

    def rerun(self, program: Program, grid: tuple[int, int, int], arguments: Any, is_fused: bool) -> None:
        """Launch on other tensors of the CPU, without checks."""
        pointers, call = self._packed(grid, arguments)
        tensors = [each for _, each in pointers.values()]
        if self._debugger is not None or not is_fused:
            other = self._variant(Sharing.PARTS if not is_fused else _sharing(tensors), True)
            (other or program).run(call)
        else:
            self._run(program, call, tensors, None, False)

    def find_writer(
        self, grid: tuple[int, int, int], arguments: Any, address: int
    ) -> tuple[int, int, int] | None:
        """Launch with checks on other tensors of the CPU; return the program that wrote at an address."""
        debugger = self._debugger or self._new_debugger()
        checked = Program(
            build.library(kernel.to_c(self._ttir, Sharing.PARTS, CHECKED_HOST), self._fuses, True)
        )
        with contextlib.suppress(KernelFault):
            self._debug(debugger, checked, grid, arguments)
        return debugger.writer(address, grid)

    def _run(
        self, program: Program, call: bytes, tensors: list[torch.Tensor], addresses: int | None, wraps: bool
    ) -> None:
        """Run in the order of streams. Addresses are those of tensors and others; None: all are CPU tensors'."""
        program = self._variant(_sharing(tensors), wraps) or program
        if addresses is None:
            program.run(call)
            return
        where = {each.device for each in tensors}
        if len(where) == 1 and not tensors[0].is_cpu and len(tensors) == addresses:
            device = tensors[0].device
            if not self._may_fail or devices.reports_failures(device):
                stream = devices.current_stream(device)
                stream.launch_program(self._name, program.address, call, tensors)
                return
        if addresses > len(tensors):
            where |= devices.accelerators()  # whose memory an address without a tensor may be
        for device in where:
            if device.type != "cpu":
                devices.current_stream(device).synchronize()
        program.run(call)

    def _packed(
        self, grid: tuple[int, int, int], arguments: Any
    ) -> tuple[dict[int, tuple[int, torch.Tensor]], bytes]:
        """Address and tensor by place among the parameters of the C function, and its call."""
        pointers: dict[int, tuple[int, torch.Tensor]] = {}
        values = []
        for place, (path, form) in enumerate(self._parameters):
            value, found = _part(arguments, path), list[torch.Tensor]()
            values.append(self._address(value, found, path[0]) if form == "P" else value)
            if found:
                pointers[place] = (values[-1], found[0])
        return pointers, self._struct.pack(*grid, *values)

    def _debug(
        self, debugger: Debugger, program: Program, grid: tuple[int, int, int], arguments: Any
    ) -> None:
        """Run with checks, at once, when all earlier work of the tensors' devices is done."""
        pointers, call = self._packed(grid, arguments)
        for device in {each.device for _, each in pointers.values() if not each.is_cpu}:
            if devices.current_stream(device).is_capturing():
                raise RuntimeError("a Triton kernel with debug=True cannot be captured in a graph")
            torch.get_device_module(device).synchronize(device)
        debugger.run(program.address, call, grid, pointers)

    def _address(self, value: Any, tensors: list[torch.Tensor], place: int) -> int:
        """Where the CPU finds a tensor's first element; notes the tensor."""
        if value is None or isinstance(value, int):
            return value or 0
        tensor = value.base if hasattr(value, "base") and not isinstance(value, torch.Tensor) else value
        if not isinstance(tensor, torch.Tensor):
            return int(value.data_ptr())
        if not tensor.numel():
            return 0
        tensors.append(tensor)
        if self._is_in_job and tensor.is_cpu and not tensor.is_pinned() and not devices.is_in_host_call():
            raise ValueError(f"Pointer argument (at {place}) cannot be accessed from Triton (cpu tensor?)")
        return devices.host_address(tensor)

    def _variant(self, sharing: Sharing, wraps: bool) -> Program | None:
        """The kernel for tensors that share memory, or integers that wrap, compiled at its first launch."""
        if sharing is Sharing.NOTHING and not wraps:
            return None
        key = sharing, wraps or self._wraps == "always"
        if key not in self._variants:
            self._variants[key] = Program(
                build.library(kernel.to_c(self._ttir, sharing), self._fuses, key[1])
            )
        return self._variants[key]


def _parameters(
    signature: Any, constants: set[tuple[int, ...]], path: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], str]]:
    """Where each argument of the C function stands among the launch's, and its format."""
    for index, type in enumerate(signature):
        at = (*path, index)
        if isinstance(type, (tuple, list)):
            yield from _parameters(type, constants, at)
        elif type == "constexpr" or at in constants:
            continue
        elif type.startswith("tensordesc"):
            yield from _parameters(_part_types(type), constants, at)
        else:
            yield at, "P" if type.startswith("*") else _FORMATS[type]


def _part(value: Any, path: tuple[int, ...]) -> Any:
    """A part of an argument that is a tuple or a descriptor."""
    for index in path:
        value = value[index] if isinstance(value, (tuple, list)) else _parts(value)[index]
    return value


def _part_types(type: str) -> list[str]:
    """Return the types of what a kernel takes for ``tensordesc<fp32[8, 16]>``; _parts returns the values."""
    element, _, shape = type[len("tensordesc<") :].partition("[")
    rank = shape.partition("]")[0].count(",") + 1
    return [f"*{element}", *["i64"] * (2 * rank), "i1", "i1", *["i32"] * rank, *["i64"] * rank]


def _parts(descriptor: Any) -> list[Any]:
    """Tensor, shape, strides, whether elements outside are NaN, whether they round to TF32; shape, strides again."""
    places = [*descriptor.shape, *descriptor.strides]
    rounds = getattr(descriptor, "round_f32_to_tf32", False)
    return [descriptor.base, *places, descriptor.padding == "nan", rounds, *places]


def _sharing(tensors: list[torch.Tensor]) -> Sharing:
    if len(tensors) < 2:
        return Sharing.NOTHING
    addresses: dict[int, int] = {}  # of first elements, by storage
    for each in tensors:
        address = each.data_ptr()
        if addresses.setdefault(each.untyped_storage().data_ptr(), address) != address:
            return Sharing.PARTS
    return Sharing.NOTHING if len(addresses) == len(tensors) else Sharing.WHOLE
