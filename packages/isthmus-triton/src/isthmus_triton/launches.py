"""Launches of one compiled kernel, on tensors of the CPU and of the host chip."""

from __future__ import annotations

import ctypes
import struct
import tempfile
from collections.abc import Iterator
from typing import Any

import torch

from isthmus_triton import build, kernel
from isthmus_triton.analysis import Sharing

# Formats of struct for scalars; each takes 8 bytes. Floats narrower than 64 bits come as float.
_FORMATS = {
    **dict.fromkeys(("i1", "i8", "i16", "i32", "i64"), "q"),
    **dict.fromkeys(("u1", "u8", "u16", "u32", "u64"), "Q"),
    **dict.fromkeys(("fp16", "bf16", "fp32", "f16", "f32"), "f4x"),
    **dict.fromkeys(("fp64", "f64"), "d"),
}


_libc = ctypes.CDLL(None)
_libc.free.argtypes = [ctypes.c_void_p]


class Program:
    """A loaded library.

    Attributes:
        run: takes the bytes of a call.
        run_and_free: the address of the function that takes those in memory of ``malloc``.
    """

    def __init__(self, binary: bytes) -> None:
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(binary)
            file.flush()
            self._library = ctypes.CDLL(file.name)
        self.run = self._library.run
        self.run.argtypes, self.run.restype = [ctypes.c_char_p], None
        self._copy = self._library.copy
        self._copy.argtypes, self._copy.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_void_p
        self.run_and_free = ctypes.cast(self._library.run_and_free, ctypes.c_void_p).value or 0

    def enqueue(self, call: bytes, stream: Any) -> None:
        """Run once the stream's work is done; its later work waits."""
        memory = self._copy(call, len(call))
        try:
            stream.launch_host_function(self.run_and_free, memory)
        except BaseException:
            _libc.free(memory)
            raise


class Launcher:
    """Launches of one compiled kernel.

    Args:
        source: the kernel and its signature.
        metadata: what the compiler noted.
        is_in_job: tensors of the CPU are refused, as on a GPU.
    """

    def __init__(self, source: Any, metadata: Any, is_in_job: bool = False) -> None:
        self._is_in_job = is_in_job
        self._ttir, self._fuses = metadata.ttir, metadata.enable_fp_fusion
        self._names = list(source.signature)
        constants = {
            key if isinstance(key, tuple) else (self._names.index(key),)
            for key in getattr(source, "constants", {})
        }
        parameters = list(_parameters(source.signature.values(), constants))
        self._places = [(path[0], path[1:]) for path, _ in parameters]
        self._pointers = [(at, path[0]) for at, (path, form) in enumerate(parameters) if form == "P"]
        places = (
            [at for at, each in enumerate(source.fn.params) if not each.is_constexpr]
            if hasattr(source, "fn")
            else []
        )
        self._without_constants = {place: at for at, place in enumerate(places)}
        self._struct = struct.Struct("qqq" + "".join(form for _, form in parameters))
        self._variants: dict[Sharing, Program] = {}

    def __call__(
        self, x: int, y: int, z: int, stream: int, program: Program, packed: Any, launch_metadata: Any, enter: Any,
        exit: Any, *arguments: Any,
    ) -> None:  # fmt: skip
        """Enqueue the programs of a grid on the stream of their chip; run them at once on tensors of the CPU."""
        if len(arguments) == len(self._without_constants) < len(self._names):  # FlagGems passes no constants
            places = self._without_constants
            arguments = tuple(
                arguments[places[at]] if at in places else None for at in range(len(self._names))
            )
        values: list[Any] = []
        tensors: list[torch.Tensor] = []
        others = []  # addresses without a tensor
        are_on_cpu = True
        for place, path in self._places:
            value = arguments[place]
            for index in path:
                value = value[index]
            values.append(value)
        for at, place in self._pointers:
            value = values[at]
            if type(value) is torch.Tensor and value.is_cpu and not self._is_in_job:
                values[at] = address = value.data_ptr()
                if address:
                    tensors.append(value)
            else:
                are_on_cpu, count = False, len(tensors)
                values[at] = address = self._address(value, tensors, place)
                if address and len(tensors) == count:
                    others.append(address)
        if enter is not None:
            enter(launch_metadata)
        if x * y * z > 0:
            sharing = _sharing(tensors) if len(tensors) > 1 else Sharing.NOTHING
            if sharing is not Sharing.NOTHING:
                program = self._variant(sharing)
            call = self._struct.pack(x, y, z, *values)
            if are_on_cpu:
                program.run(call)
            else:
                _run_after(program, call, {each.device for each in tensors}, bool(others))
        if exit is not None:
            exit(launch_metadata)

    def _address(self, value: Any, tensors: list[torch.Tensor], place: int) -> int:
        """Where the CPU finds a tensor's first element; notes the tensor."""
        if value is None or isinstance(value, int):
            return value or 0
        tensor = value.base if hasattr(value, "base") and not isinstance(value, torch.Tensor) else value
        if not isinstance(tensor, torch.Tensor):
            return value.data_ptr()
        if not tensor.numel():
            return 0
        tensors.append(tensor)
        if not tensor.is_cpu:
            from isthmus import _C

            return _C.as_host(tensor.detach()).data_ptr()
        if self._is_in_job and not tensor.is_pinned() and not _is_in_host_call():
            raise ValueError(f"Pointer argument (at {place}) cannot be accessed from Triton (cpu tensor?)")
        return tensor.data_ptr()

    def _variant(self, sharing: Sharing) -> Program:
        """The kernel for tensors that share memory, compiled at its first launch."""
        if sharing not in self._variants:
            self._variants[sharing] = Program(build.library(kernel.to_c(self._ttir, sharing), self._fuses))
        return self._variants[sharing]


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
            raise NotImplementedError("a descriptor made on the host, as an argument of a Triton kernel")
        else:
            yield at, "P" if type.startswith("*") else _FORMATS[type]


def _run_after(program: Program, call: bytes, devices: set[torch.device], has_others: bool) -> None:
    """Run in the order of streams: on the stream of the chip of all tensors, else once those of all chips are done."""
    if has_others:
        devices |= _accelerators()  # whose memory an address without a tensor may be
    chips = [each for each in devices if each.type != "cpu"]
    if len(devices) == len(chips) == 1 and not has_others:
        program.enqueue(call, _stream(chips[0]))
        return
    for chip in chips:
        _stream(chip).synchronize()
    program.run(call)


def _accelerators() -> set[torch.device]:
    device = torch.accelerator.current_accelerator(check_available=True)
    return {torch.device(device.type, torch.accelerator.current_device_index())} if device else set()


def _is_in_host_call() -> bool:
    """Whether this thread runs compiled code of the CPU, whose tensors are the chip's."""
    from isthmus.chip.compile import host_call

    return host_call.state.is_running


def _stream(device: torch.device) -> Any:
    """The current stream of a chip.

    Raises:
        RuntimeError: it is captured.
    """
    stream = torch.get_device_module(device).current_stream(device)
    if stream.is_capturing():
        raise RuntimeError("a Triton kernel cannot be captured in a graph of this chip")
    return stream


def _sharing(tensors: list[torch.Tensor]) -> Sharing:
    addresses: dict[int, int] = {}  # of first elements, by storage
    for each in tensors:
        address = each.data_ptr()
        if addresses.setdefault(each.untyped_storage().data_ptr(), address) != address:
            return Sharing.PARTS
    return Sharing.NOTHING if len(addresses) == len(tensors) else Sharing.WHOLE
