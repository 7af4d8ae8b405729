"""The stream-order checker: finds memory that one stream uses while another may still be writing it.

It intercepts every operator of the calling thread with its stream, and the core reports events and waits of all
threads. Two pieces of work are ordered if a chain of events, or a wait of the host, leads from one to the other. The
order in which the host chip happened to run them does not count.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from isthmus import _C
from isthmus_diagnostics.debug import stream_operators
from isthmus_diagnostics.debug.call import describe
from isthmus_diagnostics.debug.call_origin import Origin, origin, program_frame
from isthmus_diagnostics.debug.stream_clocks import Clocks, StreamKey
from isthmus_diagnostics.debug.stream_memory import Access, Memories, Memory, Region
from isthmus_diagnostics.debug.stream_operators import Effect


class StreamOrderError(RuntimeError):
    """Unordered work on different streams accesses the same memory."""


class StreamOrderWarning(UserWarning):
    """Unordered work on different streams accesses the same memory; the program continues."""


class StreamChecker(TorchDispatchMode):
    """A dispatch mode that checks the operators of the thread that enters it.

    Args:
        raises: raise :class:`StreamOrderError` before the second operator runs; else warn once per pair of lines.
    """

    def __init__(self, raises: bool = True) -> None:
        super().__init__()
        self.raises = raises
        self.running = False
        self.clocks = Clocks()
        self.memories = Memories(self.clocks)
        self._told: set[tuple[str, str, str, str]] = set()

    def start(self) -> None:
        """Start to check this thread's operators with the events of all threads."""
        self.running = True
        _C.listen_to_streams(self._listen)
        self.__enter__()

    def stop(self) -> None:
        """Stop checking."""
        self.running = False
        _C.listen_to_streams(None)
        if _get_current_dispatch_mode() is self:  # else it stays on the stack and passes calls through
            self.__exit__(None, None, None)

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Check and run one operator."""
        kwargs = kwargs or {}
        if stream_operators.is_traced(
            types
        ):  # before looking at the classes: fake tensors have their own mode
            return func(*args, **kwargs)
        if not all(stream_operators.is_plain(kind) for kind in types):
            return NotImplemented  # a tensor subclass: its inner tensors are checked
        if not self.running:
            return func(*args, **kwargs)
        if func is torch.ops.aten.record_stream.default:
            memory = self.memories.known_memory(args[0])
            if memory is not None:
                memory.users.add((args[1].device_index, args[1].stream_id))
            return func(*args, **kwargs)
        effect = stream_operators.effect(func)
        if effect.skipped:
            return func(*args, **kwargs)
        try:
            return self._run(effect, func, args, kwargs)
        except StreamOrderError as error:
            raise error.with_traceback(None) from None  # hide the checker's frames

    def _run(self, effect: Effect, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = list(stream_operators.tensors(effect, op, args, kwargs)) if effect.reads else []
        on_chip = [entry for entry in given if entry[1].device.type == "chip"]
        call = _Call(self, effect, any(tensor.requires_grad for _, tensor, _ in given))
        if effect.transfers and len({tensor.device.index for _, tensor, _ in on_chip}) > 1:
            call.join(tensor.device.index for _, tensor, _ in on_chip)
        for name, tensor, writes in on_chip:
            call.use(name, tensor, writes)
        on_host = [entry for entry in given if entry[1].device.type == "cpu"]
        if not on_chip:
            call.use_on_host(on_host)
        returned = op(*args, **kwargs)
        results = list(stream_operators.results(returned))
        shared = {tensor.untyped_storage()._cdata for _, tensor, _ in given}
        fresh = [tensor for tensor in results if tensor.untyped_storage()._cdata not in shared]
        for tensor in fresh:
            if tensor.device.type == "chip":
                call.make(tensor, effect.fills)
        if effect.transfers:
            on_host += [("the result", tensor, True) for tensor in fresh if tensor.device.type == "cpu"]
            self._transfer(call, on_host, _argument(op, args, kwargs, "non_blocking") is True)
        if call.streams and effect.answers_host:
            self.clocks.stream_done(next(iter(call.streams.values())))
        return returned

    def _transfer(
        self, call: _Call, on_host: list[tuple[str, torch.Tensor, bool]], non_blocking: bool
    ) -> None:
        """Order a copy between host and device: the host waits, or pinned memory is accessed asynchronously."""
        if not call.streams:
            return
        stream = next(iter(call.streams.values()))
        for name, tensor, writes in on_host:
            if non_blocking and tensor.is_pinned():
                call.use_on(stream, name, tensor, writes)
            elif not non_blocking or writes:
                self.clocks.stream_done(stream)

    def report(self, new: Access, old: Access, tensor: torch.Tensor, on_host: bool) -> None:
        """Raise or warn about two unordered accesses."""
        pair = (new.operator, str(new.origin), old.operator, str(old.origin))
        text = _message(new, old, tensor, on_host)
        if self.raises:
            raise StreamOrderError(text)
        if pair not in self._told:
            self._told.add(pair)
            _warn(text)

    def _listen(self, action: str, what: int, stream_id: int, device: int) -> None:
        stream = (device, stream_id)
        if action == "record":
            self.clocks.record(what, stream)
        elif action == "wait":
            self.clocks.wait(stream, what)
        elif action == "event_done":
            self.clocks.event_done(what)
        elif action == "stream_done":
            self.clocks.stream_done(stream)
        elif action == "device_done":
            self.clocks.device_done(device)
        elif action == "memory_used":
            memory = self.memories.at(what)
            if memory is not None:
                memory.users.add(stream)


class _Call:
    """An operator call: work on the current stream of each device that it uses."""

    def __init__(self, checker: StreamChecker, effect: Effect, requires_grad: bool) -> None:
        self.checker = checker
        self.effect = effect
        self.requires_grad = requires_grad
        self.streams: dict[int, StreamKey] = {}
        self._numbers: dict[StreamKey, int] = {}
        self._origin: Origin | None = None

    @property
    def origin(self) -> Origin:
        """The line of the program."""
        if self._origin is None:
            self._origin = origin(self.requires_grad)
        return self._origin

    def stream(self, device: int) -> StreamKey:
        """Return the stream that the call runs on."""
        if device not in self.streams:
            self.streams[device] = (device, _C.current_stream(device)[0])
        return self.streams[device]

    def join(self, devices: Iterable[int]) -> None:
        """Order a copy between devices after the work of both streams, and later work of both after it."""
        streams = [self.stream(device) for device in devices]
        for stream in streams:
            self._number(stream)
        self.checker.clocks.join(streams)

    def use(self, name: str, tensor: torch.Tensor, writes: bool) -> None:
        """Record an access to a tensor on the chip."""
        self.use_on(self.stream(tensor.device.index), name, tensor, writes)

    def make(self, tensor: torch.Tensor, fills: bool) -> None:
        """Record a new tensor, written if it is filled."""
        stream = self.stream(tensor.device.index)
        memory = self.checker.memories.memory_of(tensor, stream)
        if fills:
            self._add(memory, self._access("its result", tensor, True, stream), tensor)

    def use_on(self, stream: StreamKey, name: str, tensor: torch.Tensor, writes: bool) -> None:
        """Record an access to a tensor on a stream."""
        user = stream if tensor.device.type == "chip" else None
        memory = self.checker.memories.memory_of(tensor, None, user)
        self._add(memory, self._access(name, tensor, writes, stream), tensor)

    def use_on_host(self, tensors: list[tuple[str, torch.Tensor, bool]]) -> None:
        """Check accesses of the host to tensors that copies may still be using."""
        for name, tensor, writes in tensors:
            memory = self.checker.memories.known_memory(tensor)
            if memory is None or not memory.accesses:
                continue
            new = Access(
                self.effect.name,
                name,
                writes,
                memory.accesses[0].stream,
                0,
                self.origin,
                Region.of_tensor(tensor),
            )
            old = memory.find_conflict(new, None, self.checker.clocks)
            if old is not None:
                self.checker.report(new, old, tensor, True)

    def _access(self, name: str, tensor: torch.Tensor, writes: bool, stream: StreamKey) -> Access:
        number = self._number(stream)
        return Access(self.effect.name, name, writes, stream, number, self.origin, Region.of_tensor(tensor))

    def _number(self, stream: StreamKey) -> int:
        if stream not in self._numbers:
            self._numbers[stream] = self.checker.clocks.work(stream)
        return self._numbers[stream]

    def _add(self, memory: Memory, new: Access, tensor: torch.Tensor) -> None:
        old = memory.find_conflict(new, new.stream, self.checker.clocks)
        if old is not None:
            self.checker.report(new, old, tensor, False)
        memory.add(new)


def _argument(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Any:
    if name in kwargs:
        return kwargs[name]
    position = next((i for i, a in enumerate(op._schema.arguments) if a.name == name), len(args))
    return args[position] if position < len(args) else None


def _message(new: Access, old: Access, tensor: torch.Tensor, on_host: bool) -> str:
    verbs = ("reads", "writes")
    where = "on the host" if on_host else f"on {_stream_name(new.stream)}"
    text = (
        f"{new.operator} at {new.origin} {verbs[new.writes]} {new.argument} ({describe(tensor)}) {where} while "
        f"{old.operator} at {old.origin} may still be {'writing' if old.writes else 'reading'} "
    )
    before = _stream_name(old.stream)
    if old.freed:
        return (
            text + f"the same memory on {before}, through a tensor that has been freed. "
            "Call record_stream() with that stream before that tensor is freed."
        )
    remedy = (
        f"synchronize {before} first." if on_host else f"make {where[3:]} wait for {before} (wait_stream)."
    )
    return text + f"it on {before}. Nothing orders them: {remedy}"


def _stream_name(stream: StreamKey) -> str:
    device, number = stream
    return f"stream {number} of chip:{device}" if number else f"the default stream of chip:{device}"


def _warn(text: str) -> None:
    """Warn with the line of the program, not of PyTorch or of this package."""
    frame = program_frame()
    if frame is None:
        warnings.warn(text, StreamOrderWarning, stacklevel=1)
        return
    warnings.warn_explicit(
        text,
        StreamOrderWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        frame.f_globals.get("__name__"),
        frame.f_globals.setdefault("__warningregistry__", {}),
    )


_checker: StreamChecker | None = None


def check(on: bool, raises: bool = True) -> None:
    """Start or stop the process's checker; see :func:`torch.chip.set_stream_check`."""
    global _checker
    if _checker is not None:
        _checker.stop()
        _checker = None
    if on:
        _checker = StreamChecker(raises)
        _checker.start()


def is_checking() -> bool:
    """Return whether the checker is running."""
    return _checker is not None
