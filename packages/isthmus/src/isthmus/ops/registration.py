"""Operators behind the functions of isthmus.ops, and the choice of an implementation per call.

Every operator is in the opset (namespace ``isthmus``) and is called through PyTorch's dispatcher, so it works under
FakeTensor and ``torch.compile``. Its kernel takes the first registered implementation that supports the device and
the arguments. A kernel from the chip's operator library comes first; ``composite``, written in PyTorch's operators,
comes last and supports every call.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from isthmus.ops import meta
from isthmus.opset import schema_of

_logger = logging.getLogger("isthmus.ops")
_library = torch.library.Library("isthmus", "DEF")

COMPOSITE, KERNEL = "composite", "kernel"


def compute_dtype(tensor: torch.Tensor) -> torch.dtype:
    """The dtype in which an operator computes: float64 for float64 tensors, else float32."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


class Implementation(NamedTuple):
    """One way to compute an operator.

    Attributes:
        name: ``kernel``, ``triton``, ``npu``, ``cpu``, ``composite``.
        call: function of the operator's positional arguments that returns its results.
        on: whether it supports a device.
        refuses: function of the arguments: why it does not support them, or "".
    """

    name: str
    call: Callable[..., Any]
    on: Callable[[torch.device], bool]
    refuses: Callable[..., str]


class Choice(NamedTuple):
    """The implementation chosen for a call.

    Attributes:
        operator: such as ``rms_norm``.
        implementation: its name.
        reason: why it was chosen.
        refused: why earlier implementations do not support the call, by name.
    """

    operator: str
    implementation: str
    reason: str
    refused: dict[str, str]

    def __str__(self) -> str:
        others = "".join(f"; {name}: {why}" for name, why in self.refused.items())
        return f"{self.operator}: {self.implementation} ({self.reason}{others})"


class Operator:
    """An operator of the namespace ``isthmus``.

    Args:
        name: in the opset, without the namespace.
        composite: the operator written in PyTorch's operators, for any device; takes positional arguments.
        any_dtype: whether it accepts tensors that are not floating point.
    """

    def __init__(self, name: str, composite: Callable[..., Any], any_dtype: bool = False) -> None:
        self.name = name
        self.composite = composite
        self.schema = schema_of(f"isthmus::{name}")
        self._forced = ""
        self._logged: set[str] = set()
        self._any_dtype = any_dtype
        self._serving: dict[torch.device, list[Implementation]] = {}
        self._implementations = [Implementation(COMPOSITE, self._compose, lambda _: True, lambda *_: "")]
        _library.define(self.schema.text.removeprefix("isthmus::"))
        _library.impl(name, self._run, "CompositeExplicitAutograd")
        _library.impl(name, meta.function(f"isthmus::{name}"), "Meta")
        self._overload = getattr(torch.ops.isthmus, name).default
        self._chip = _chip_with_kernels(f"isthmus::{name}")
        if self._chip:
            kind = self._chip
            served = Implementation(KERNEL, self._overload, lambda device: device.type == kind, lambda *_: "")
            self._implementations.insert(0, served)

    def __call__(self, *arguments: Any) -> Any:
        """Call the operator; all arguments of the schema by position."""
        if _recorded is not None and threading.get_ident() == _recorder:
            _recorded.append(self.choose(arguments))
        return self._overload(*arguments)

    def add(self, implementation: Implementation) -> None:
        """Register an implementation, after the existing ones and before the composite."""
        self._implementations.insert(-1, implementation)
        self._serving.clear()

    def names(self) -> list[str]:
        """The implementations in the order in which they are tried."""
        return [each.name for each in self._implementations]

    def force(self, implementation: str) -> None:
        """Take this implementation for every call; "" restores the automatic choice."""
        self._forced = implementation
        if self._chip:
            route = {"": "", KERNEL: KERNEL}.get(implementation, "decomposition")
            torch.get_device_module(self._chip).set_route(f"isthmus::{self.name}", route)

    @property
    def forced(self) -> str:
        """The forced implementation, or ""."""
        return self._forced

    def choose(self, arguments: tuple[Any, ...]) -> Choice:
        """The implementation that a call with these arguments takes.

        Raises:
            ValueError: the forced implementation does not support them.
        """
        return self._choose(arguments)[1]

    def _choose(self, arguments: tuple[Any, ...]) -> tuple[Implementation, Choice]:
        device = first_tensor(arguments).device
        refused: dict[str, str] = {}
        for each in self._implementations:
            if self._forced and each.name != self._forced:
                continue
            why = each.refuses(*arguments) if each.on(device) else f"not for {device.type}"
            if not why:
                reason = "forced" if self._forced else f"the first that supports {device.type}"
                return each, Choice(self.name, each.name, reason, refused)
            refused[each.name] = why
        raise ValueError(
            f"isthmus.ops: {self.name} is forced to {self._forced!r}, which does not support this call: "
            f"{refused.get(self._forced, 'not available in this process')}; "
            f"undo it with use({self.name!r}, None)"
        )

    def _run(self, *arguments: Any) -> Any:
        if not self._forced:  # fast path: does not record why others were refused
            device = first_tensor(arguments).device
            if device not in self._serving:  # the dispatcher has tried the chip's kernels
                others = self._implementations[bool(self._chip) :]
                self._serving[device] = [each for each in others if each.on(device)]
            for each in self._serving[device]:
                if not each.refuses(*arguments):
                    return each.call(*arguments)
        return self._choose(arguments)[0].call(*arguments)

    def _compose(self, *arguments: Any) -> Any:
        kind = first_tensor(arguments).dtype
        if not self._any_dtype and not kind.is_floating_point:
            raise ValueError(
                f"isthmus.ops: {self.name} got {kind}; it supports float16, bfloat16, float32 and float64"
            )
        if not self._forced:
            self._log_fallback(arguments)
        return pytree.tree_map_only(torch.Tensor, torch.Tensor.contiguous, self.composite(*arguments))

    def _log_fallback(self, arguments: tuple[Any, ...]) -> None:
        """Log, once per reason, why a call falls back although its device has a faster implementation."""
        device = first_tensor(arguments).device
        for each in self._implementations[bool(self._chip) : -1]:
            why = each.refuses(*arguments) if each.on(device) else ""
            message = f"{self.name} falls back from {each.name} to {COMPOSITE}: {why}"
            if why and message not in self._logged:
                self._logged.add(message)
                _logger.warning("%s", message)


_operators: dict[str, Operator] = {}
_recorded: list[Choice] | None = None
_recorder = 0  # the thread whose calls are recorded
_recording = threading.RLock()


def operator(name: str, any_dtype: bool = False) -> Callable[[Callable[..., Any]], Operator]:
    """Decorator that defines an operator; the function is its composite."""

    def define(composite: Callable[..., Any]) -> Operator:
        made = _operators[name] = Operator(name, composite, any_dtype)
        return made

    return define


class _NoContext:
    """The context of an autograd function whose backward is not recorded."""

    def save_for_backward(self, *tensors: Any) -> None:
        """Save nothing."""

    mark_dirty = mark_non_differentiable = set_materialize_grads = save_for_backward


def apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """``function.apply``; with gradients disabled only its forward, which takes less time on the host."""
    if torch.is_grad_enabled():
        return function.apply(*arguments)
    return function.forward(_NoContext(), *arguments)


def operators() -> dict[str, Operator]:
    """Every operator, by name."""
    return dict(_operators)


@contextlib.contextmanager
def record_choices() -> Iterator[list[Choice]]:
    """Collect the choices of the calls that this thread makes inside the block."""
    global _recorded, _recorder
    with _recording:
        outer = _recorded, _recorder
        _recorded, _recorder = [], threading.get_ident()
        try:
            yield _recorded
        finally:
            _recorded, _recorder = outer


def first_tensor(arguments: tuple[Any, ...]) -> torch.Tensor:
    """The first tensor among the arguments of an operator, or in the first list of tensors."""
    for each in arguments:
        if isinstance(each, torch.Tensor):
            return each
        if isinstance(each, list | tuple) and each and isinstance(each[0], torch.Tensor):
            return each[0]
    raise TypeError("an operator of isthmus.ops needs at least one tensor argument")


def _chip_with_kernels(name: str) -> str:
    """Device type of the accelerator if its operator libraries have a kernel for this overload, else ""."""
    accelerator = torch.accelerator.current_accelerator()
    module = torch.get_device_module(accelerator) if accelerator is not None else None
    serve = getattr(module, "serve_extension", None)
    return accelerator.type if accelerator is not None and serve is not None and serve(name) else ""


def is_batch_invariant(kind: str) -> bool:
    """Whether the batch-invariant mode of a device type is on; only the chip has one."""
    asked = getattr(getattr(torch, kind, None), "is_batch_invariant", None)
    return asked is not None and bool(asked())


@cache
def addressed_by_cpu(kind: str) -> bool:
    """Whether CPU code can access the memory of devices of this type."""
    if kind == "cpu":
        return True
    module = getattr(torch, kind, None)
    asked = getattr(module, "is_host_addressable", None)
    return bool(asked and asked())
