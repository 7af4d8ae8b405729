"""The operators that the functions of isthmus.ops are made of, and which implementation a call of one takes.

Every operator is in the opset (namespace ``isthmus``) and is called through PyTorch's dispatcher, so that it works
under FakeTensor and ``torch.compile``. Its kernel chooses among the implementations when it runs: the first, in the
order in which they were registered, that is for the tensors' device and serves the arguments. A kernel of the chip's
own operator libraries comes ahead of all; ``composite``, in terms of PyTorch's operators, comes last and serves every
call.
"""

from __future__ import annotations

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


class Implementation(NamedTuple):
    """One way to compute an operator.

    Attributes:
        name: ``kernel``, ``triton``, ``npu``, ``cpu``, ``composite``.
        call: takes the operator's arguments by position, returns its results.
        on: whether it is for tensors of a device.
        refuses: takes the arguments; why it does not serve them, or "".
    """

    name: str
    call: Callable[..., Any]
    on: Callable[[torch.device], bool]
    refuses: Callable[..., str]


class Choice(NamedTuple):
    """What a call takes.

    Attributes:
        operator: ``rms_norm``.
        implementation: name of the implementation.
        reason: why that one.
        refused: why those before it do not serve the call, by name.
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
        composite: it in terms of PyTorch's operators, for any device; takes the arguments by position.
        any_dtype: whether it takes tensors that are not of floats, as what only moves elements does.
    """

    def __init__(self, name: str, composite: Callable[..., Any], any_dtype: bool = False) -> None:
        self.name = name
        self.composite = composite
        self.schema = schema_of(f"isthmus::{name}")
        self._forced = ""
        self._told: set[str] = set()
        self._any_dtype = any_dtype
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
        """Register an implementation, behind those that were registered before and ahead of the composite."""
        self._implementations.insert(-1, implementation)

    def names(self) -> list[str]:
        """The implementations in the order in which they are asked."""
        return [each.name for each in self._implementations]

    def force(self, implementation: str) -> None:
        """Take that implementation for every call; "" chooses again."""
        self._forced = implementation
        if self._chip:
            route = {"": "", KERNEL: KERNEL}.get(implementation, "decomposition")
            torch.get_device_module(self._chip).set_route(f"isthmus::{self.name}", route)

    @property
    def forced(self) -> str:
        """The implementation that every call takes, or ""."""
        return self._forced

    def choose(self, arguments: tuple[Any, ...]) -> Choice:
        """The implementation that a call with these arguments takes.

        Raises:
            ValueError: one is forced and does not serve them.
        """
        return self._choose(arguments)[1]

    def _choose(self, arguments: tuple[Any, ...]) -> tuple[Implementation, Choice]:
        device = _device(arguments)
        refused: dict[str, str] = {}
        for each in self._implementations:
            if self._forced and each.name != self._forced:
                continue
            why = each.refuses(*arguments) if each.on(device) else f"not for {device.type}"
            if not why:
                reason = "forced" if self._forced else f"the first that serves {device.type}"
                return each, Choice(self.name, each.name, reason, refused)
            refused[each.name] = why
        raise ValueError(
            f"isthmus.ops: {self.name} is to use {self._forced!r}, which does not serve this call: "
            f"{refused.get(self._forced, 'there is no such implementation here')}; "
            f"use({self.name!r}, None) lets Isthmus choose"
        )

    def _run(self, *arguments: Any) -> Any:
        if not self._forced:  # the fast path: nothing is recorded of the ones that fit at once
            device = _device(arguments)
            for each in self._implementations[bool(self._chip) :]:  # the chip's kernels were asked before
                if each.on(device) and not each.refuses(*arguments):
                    return each.call(*arguments)
        return self._choose(arguments)[0].call(*arguments)

    def _compose(self, *arguments: Any) -> Any:
        kind = _tensor(arguments).dtype
        if not self._any_dtype and not kind.is_floating_point:
            raise ValueError(
                f"isthmus.ops: {self.name} is given {kind}; it computes in float16, bfloat16, float32 or float64"
            )
        if not self._forced:
            self._tell(arguments)
        return pytree.tree_map_only(torch.Tensor, torch.Tensor.contiguous, self.composite(*arguments))

    def _tell(self, arguments: tuple[Any, ...]) -> None:
        """Log once for each reason that a call falls back though its device has something faster."""
        device = _device(arguments)
        for each in self._implementations[bool(self._chip) : -1]:
            why = each.refuses(*arguments) if each.on(device) else ""
            if (
                why
                and (said := f"{self.name} falls back from {each.name} to {COMPOSITE}: {why}")
                not in self._told
            ):
                self._told.add(said)
                _logger.warning("%s", said)


_operators: dict[str, Operator] = {}
_recorded: list[Choice] | None = None
_recorder = 0  # the thread whose calls are recorded
_recording = threading.RLock()


def operator(name: str, any_dtype: bool = False) -> Callable[[Callable[..., Any]], Operator]:
    """Decorator: make the function the composite of an operator, and the operator of it."""

    def define(composite: Callable[..., Any]) -> Operator:
        made = _operators[name] = Operator(name, composite, any_dtype)
        return made

    return define


def operators() -> dict[str, Operator]:
    """Every operator by its name."""
    return dict(_operators)


@contextlib.contextmanager
def recorded() -> Iterator[list[Choice]]:
    """Collect the choices of this thread's calls inside."""
    global _recorded, _recorder
    with _recording:
        outer = _recorded, _recorder
        _recorded, _recorder = [], threading.get_ident()
        try:
            yield _recorded
        finally:
            _recorded, _recorder = outer


def _device(arguments: tuple[Any, ...]) -> torch.device:
    return _tensor(arguments).device


def _tensor(arguments: tuple[Any, ...]) -> torch.Tensor:
    for each in arguments:
        if isinstance(each, torch.Tensor):
            return each
        if isinstance(each, list | tuple) and each and isinstance(each[0], torch.Tensor):
            return each[0]
    raise TypeError("an operator of isthmus.ops needs a tensor among its arguments")


def _chip_with_kernels(name: str) -> str:
    """Device type of the accelerator whose operator libraries have a kernel for that overload, or ""."""
    accelerator = torch.accelerator.current_accelerator()
    module = torch.get_device_module(accelerator) if accelerator is not None else None
    serve = getattr(module, "serve_extension", None)
    return accelerator.type if accelerator is not None and serve is not None and serve(name) else ""


@cache
def addressed_by_cpu(kind: str) -> bool:
    """Whether CPU code may work on the memory of devices of that type."""
    if kind == "cpu":
        return True
    module = getattr(torch, kind, None)
    asked = getattr(module, "is_host_addressable", None)
    return bool(asked and asked())
