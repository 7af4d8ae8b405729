"""Launch kernels in Triton's interpreter, on the memory of the chip's tensors."""

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy
import torch
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.jit import JITFunction, TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from isthmus import _C
from isthmus.chip.compile import host_call
from isthmus.drivers.libdevice import lock
from isthmus.shim.triton.interpreter_source import interpreted
from isthmus_common.patches import Scope
from isthmus_common.progress import say

_REASON = "Triton compiles for GPUs; its interpreter runs kernels on the host chip"
_said = False


def install(scope: Scope) -> None:
    """Replace launches of kernels, calls between their functions, and the choice of a configuration."""
    for name in ("jit.JITFunction", "interpreter.InterpretedFunction"):
        scope.replace(f"triton.runtime.{name}.run", lambda _: _run, _REASON)
        scope.replace(f"triton.runtime.{name}.__call__", _wrap_call, _REASON)
    scope.replace(
        "triton.runtime.autotuner.Autotuner._bench",
        lambda _: _rank,
        "times of the interpreter say nothing",
        expects=("self", "args", "config", "meta"),
    )
    scope.replace(
        "triton.runtime.interpreter.InterpreterBuilder.__getattr__",
        lambda _: _missing_attribute,
        "names what is missing",
    )
    asm = "triton.runtime.interpreter.InterpreterBuilder.create_inline_asm"
    scope.replace(asm, lambda _: lambda *args: _refuse("inline assembly"), "says what to do instead")


def _run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
    """Run the programs of a grid one after another, once the current stream has drained."""
    _say_once()
    if warmup:
        return _Warm(self)
    if torch.accelerator.current_stream().is_capturing():
        raise RuntimeError(
            f"Triton kernel {self.fn.__name__!r} cannot be captured in a graph: Triton's interpreter runs it"
        )
    for hook in self.pre_run_hooks:
        hook(*args, **kwargs)
    function = interpreted(self.fn)
    names = set(self.arg_names)
    named = inspect.getcallargs(function, *args, **{k: v for k, v in kwargs.items() if k in names})
    sizes = tuple(map(int, grid(named) if callable(grid) else grid))
    if isinstance(self, JITFunction) and not host_call.state.is_running:
        _require_device(named)
    _wait_for(named.values())
    constants = _constants(self.fn)
    values = {k: v if k in constants else _value(on_host(v)) for k, v in named.items()}
    with lock, _language(), numpy.errstate(all="ignore"):
        builder = interpreter.interpreter_builder
        builder.set_grid_dim(*sizes, *(1,) * (3 - len(sizes)))
        for place in itertools.product(*map(range, builder.grid_dim)):
            builder.set_grid_idx(*place)
            function(**values)
    return None


class _Warm:
    """Result of ``kernel.warmup(...)``: launches the kernel, and reports the smallest use of a multiprocessor."""

    n_regs, n_spills = 1, 0
    metadata = SimpleNamespace(shared=1)

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return functools.partial(self._kernel.run, grid=grid, warmup=False)

    def _init_handles(self) -> None:
        """Load nothing; scripts call it before they read the attributes."""


def _require_device(arguments: dict[str, Any]) -> None:
    """Raise ValueError, as Triton's launcher, for a tensor that a GPU could not read."""
    for place, value in enumerate(arguments.values()):
        if isinstance(value, torch.Tensor) and value.is_cpu and value.numel() and not value.is_pinned():
            raise ValueError(f"Pointer argument (at {place}) cannot be accessed from Triton (cpu tensor?)")


def _wait_for(arguments: Iterable[Any]) -> None:
    """Wait for the current stream, and for that of each device that has one of the tensors."""
    torch.accelerator.current_stream().synchronize()
    for device in {each.device for each in arguments if isinstance(each, torch.Tensor)}:
        if device.type != "cpu":
            torch.accelerator.current_stream(device).synchronize()


def _wrap_call(original: Callable[..., Any]) -> Callable[..., Any]:
    """The call of a ``@triton.jit`` function by another."""

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return (interpreted(self.fn) if _running else original.__get__(self))(*args, **kwargs)

    return call


@functools.cache
def _constants(function: Callable[..., Any]) -> frozenset[str]:
    """Names of the parameters annotated with ``tl.constexpr``."""
    return frozenset(p.name for p in JITFunction(function).params if p.is_constexpr)


def on_host(value: Any) -> Any:
    """The argument with CPU tensors over the chip's memory in place of the chip's."""
    if isinstance(value, torch.Tensor):
        return _C.as_host(value.detach())
    if isinstance(value, TensorWrapper):
        return TensorWrapper(on_host(value.base), value.dtype)
    if isinstance(value, tuple):
        return interpreter._tuple_create(value, map(on_host, value))
    if isinstance(value, TensorDescriptor):
        fields = (value.shape, value.strides, value.block_shape, value.padding, value.round_f32_to_tf32)
        return TensorDescriptor(on_host(value.base), *fields)
    return value


def _value(argument: Any) -> Any:
    """The argument as the kernel sees it: addresses for tensors, scalars of Triton's types for numbers."""
    if isinstance(argument, tuple):
        return interpreter._tuple_create(argument, map(_value, argument))
    for kind, of_numpy, of_triton in ((bool, numpy.bool_, tl.int1), (float, numpy.float32, tl.float32)):
        if isinstance(argument, kind):
            handle = interpreter.TensorHandle(numpy.array([argument], dtype=of_numpy), of_triton)
            return tl.tensor(handle, of_triton)
    return interpreter._implicit_cvt(argument)


def _rank(self: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
    """A time that is lowest for the configuration with the largest blocks: the fewest programs."""
    sizes = (v for v in config.kwargs.values() if isinstance(v, int) and v > 0)
    return [-float(numpy.prod([1, *sizes], dtype=float))] * 3


# ---- the language ------------------------------------------------------------------------------------------------

_running = False
_changes: list[tuple[Any, str, Any, Any]] = []


@contextmanager
def _language() -> Iterator[None]:
    """Give the functions of ``triton.language`` the interpreter's meaning."""
    global _running
    if _running:
        yield
        return
    if not _changes:
        _changes.extend(_find_changes())
    for owner, name, value, _ in _changes:
        setattr(owner, name, value)
    _running = True
    try:
        yield
    finally:
        _running = False
        for owner, name, _, original in reversed(_changes):
            setattr(owner, name, original)


def _find_changes() -> Iterator[tuple[Any, str, Any, Any]]:
    """Yield what the interpreter changes: owner, name, its value, the original."""
    modules = {"tl": tl, "core": tl.core}
    scope = interpreter._patch_lang(SimpleNamespace(__globals__=modules))
    found = [(owner, name, original, getattr(owner, name)) for owner, name, original in scope._changes]
    scope.restore()
    missing = interpreter._MISSING
    yield from (
        (owner, name, value, original) for owner, name, original, value in found if original is not missing
    )
    for name, member in vars(tl.tensor).items():
        if isinstance(member, JITFunction):  # x.sum(): a method once it is a function
            yield tl.tensor, name, _method(member), member


def _method(member: JITFunction) -> Callable[..., Any]:
    def method(*args: Any, **kwargs: Any) -> Any:
        return member(*args, **kwargs)

    return method


# ---- what the interpreter cannot do ------------------------------------------------------------------------------


def _missing_attribute(self: Any, name: str) -> Any:
    if name.startswith("create_"):
        return functools.partial(_refuse, name.removeprefix("create_"))
    raise AttributeError(name)


def _refuse(name: str, *args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError(
        f"Triton's interpreter cannot run {name}, which this kernel uses: run the kernel on a device with a Triton "
        "backend, or call PyTorch's operators in its place"
    )


def _say_once() -> None:
    global _said
    if not _said:
        _said = True
        say("Triton kernels run in Triton's interpreter on the host chip: slow")
