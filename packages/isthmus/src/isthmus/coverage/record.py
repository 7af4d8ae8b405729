"""Record the operators that a model calls on the chip, without a device: fake tensors, which have no data."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from isthmus import opset
from isthmus.chip import device_count, routes
from isthmus.chip.registration import libraries, python_decompositions
from isthmus.coverage.models import Input, Model, ModelError
from isthmus.opset.dtypes import DTYPES
from isthmus_common.text import first_line

_DEVICE = torch.device("chip", 0)
_EXAMPLES = 3  # sets of dtypes and of shapes kept of each operator
_TENSORS = 4  # shapes in an example; lists of tensors are long
_NOT_OPERATORS = frozenset({"prim", "profiler"})  # namespaces
_COMPOSITE = (
    DispatchKey.CompositeExplicitAutograd,
    DispatchKey.CompositeImplicitAutograd,
    DispatchKey.CompositeExplicitAutogradNonFunctional,
)
_PROMOTING = frozenset({"aten::cat", "aten::stack", "aten::floor_divide"})  # without the tag pointwise
_NOT_PROMOTED = frozenset({"condition", "mask"})

_ATEN = torch.ops.aten
# Results of operators for backends, which have no meta function.
_WITHOUT_META: dict[str, Callable[..., Any]] = {
    "aten::_copy_from": lambda source, to, non_blocking=False: to,
    "aten::convolution_overrideable": _ATEN.convolution.default,
    "aten::convolution_backward_overrideable": lambda grad, self, weight, *rest: (
        _ATEN.convolution_backward.default(grad, self, weight, weight.shape[:1], *rest)
    ),
}


@dataclass
class Operator:
    """Calls of an operator on one route.

    Attributes:
        name: the overload whose kernel serves it, such as "aten::add.Tensor" for ``add_``.
        route: kernel, native, delegate, decomposition, fallback or none.
        reason: why it takes this route.
        is_lacking: whether the chip runs it on the CPU, not at all, or in parts although it could have a kernel.
        calls: number of calls, those of decompositions included.
        dtypes: sets of dtypes of the tensors of a call, such as "bfloat16 int64".
        shapes: examples, such as "1x512x64 64x64".
        parts: operators that a decomposition calls, with the number of calls.
    """

    name: str
    route: str
    reason: str
    is_lacking: bool
    calls: int = 0
    dtypes: list[str] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)
    parts: Counter[str] = field(default_factory=Counter)

    @property
    def in_opset(self) -> bool:
        """Whether an operator library can have a kernel for it."""
        return opset.canonical(self.name) is not None


@dataclass
class Record:
    """The operators of a run, most calls first, and the calls whose result depends on values, which fakes lack."""

    operators: list[Operator]
    guessed: Counter[str]


def record(name: str, model: Model, train: bool) -> Record:
    """Call a model on fake tensors of the chip.

    Args:
        name: names the model in messages.
        train: also the backward, clipping of gradients, and AdamW over lists of tensors.

    Raises:
        ModelError: the model cannot be called in this way.
    """
    if train and not device_count():  # PyTorch's engine would read the streams of the device
        raise ModelError("--train needs a device of the driver; without one leave it out")
    recorder = _Recorder()
    try:
        # A fallback kernel would run on a device.
        with (
            FakeTensorMode(allow_non_fake_inputs=True, allow_fallback_kernels=False),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # of kernels that read data
            module: Any = model.module.to_empty(device=_DEVICE).train(train)
            if hasattr(module, "tie_weights"):
                module.tie_weights()
            positional = [_make(each) for each in model.positional]
            named = {key: _make(each) for key, each in model.named.items()}
            if train and model.labels is not None:
                named["labels"] = _make(Input(model.labels, torch.int64))
            with recorder, torch.set_grad_enabled(train):
                output = module(*positional, **named)
                if train:
                    _update(module, _loss(output))
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from None
    except Exception as error:
        what = f"{type(error).__name__}: {first_line(error)}"
        raise ModelError(f"{name}: cannot be called without data (fake tensors): {what}") from None
    found = sorted(recorder.operators.values(), key=lambda each: (-each.calls, each.name))
    return Record(found, recorder.guessed)


def _make(given: Input) -> Tensor:
    return torch.empty(given.shape, dtype=given.dtype, device=_DEVICE)


def _loss(output: Any) -> Tensor:
    """Return the ``loss`` of an output, or the sum of all floating-point tensors in it."""
    given = getattr(output, "loss", None)
    if isinstance(given, Tensor):
        return given
    tensors = [each for each in tree_leaves(output) if isinstance(each, Tensor) and each.is_floating_point()]
    if not tensors:
        raise ModelError("forward returns no floating-point tensor, of which --train makes a loss")
    return torch.stack([each.float().sum() for each in tensors]).sum()


def _update(module: torch.nn.Module, loss: Tensor) -> None:
    trained = [each for each in module.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, foreach=True)  # the default on a chip, but not for fakes
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0, foreach=True)
    optimizer.step()


class _Recorder(TorchDispatchMode):
    """Records each call below autograd, and those of decompositions, with the route of an eager call."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: dict[tuple[str, str], Operator] = {}
        self.guessed: Counter[str] = Counter()
        self._routes = routes()
        self._decompositions = python_decompositions()
        used = {route for route, _ in self._routes.values()}
        self._cpu = next((each for each in ("delegate", "fallback") if each in used), "none")
        self._within: list[tuple[OpOverload, Counter[str]]] = []  # decompositions under way, with their calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace in _NOT_OPERATORS or not _on_chip((args, kwargs)):
            return self._fake(func, args, kwargs)
        route, reason = self._route(func)
        if route == "decomposition":
            return self._decompose(func, reason, args, kwargs)
        result = self._fake(func, args, kwargs)
        if route == "kernel" and not _takes(
            _kernels(func), dtypes := _kernel_dtypes(func, args, kwargs, result)
        ):
            refused = f"no kernel takes {', '.join(sorted(dtypes))}"
            if _is_composite(func) or func.name() in self._decompositions:
                return self._decompose(func, refused, args, kwargs)
            route, reason = self._cpu_route(func), refused
        self._note(func, route, reason, (args, kwargs, result))
        return result

    def _route(self, func: OpOverload) -> tuple[str, str]:
        """Return the first route of an overload, also of a package's that was registered after the routes."""
        kernels = _kernels(func)
        known = self._routes.get(func.name())
        if known and not (
            kernels and func.name() == "aten::copy_"
        ):  # a composite, whose parts take the kernel
            return known
        if kernels:
            return "kernel", "library " + ", ".join(library for library, _ in kernels)
        if _is_composite(func):
            return "decomposition", "composite"
        return self._cpu_route(func), "no kernel and no decomposition"

    def _cpu_route(self, func: OpOverload) -> str:
        return self._cpu if func.has_kernel_for_dispatch_key(DispatchKey.CPU) else "none"

    def _decompose(self, func: OpOverload, reason: str, args: Any, kwargs: Any) -> Any:
        if any(func is outer for outer, _ in self._within):  # a decomposition that calls its own operator
            result = self._fake(func, args, kwargs)
            if not _is_composite(func):
                self._note(func, self._cpu_route(func), "its decomposition calls it", (args, kwargs, result))
            return result
        parts: Counter[str] = Counter()
        self._within.append((func, parts))
        try:
            with self:
                result = self._call_decomposition(func, args, kwargs)
        except RuntimeError:  # it reads data; an error of the call itself is raised again below
            result, reason = None, f"{reason}; reads data, so that not all of its calls are known"
        finally:
            self._within.pop()
        if result is None or not _is_fake(result):  # or a view of the storage alone, which has no device
            result = self._fake(func, args, kwargs)
        if _served_name(func) in parts:  # by another overload of the same kernel, which is noted
            self._count_part(_served_name(func))
        else:
            self._note(func, "decomposition", reason, (args, kwargs, result), parts)
        return result

    def _call_decomposition(self, func: OpOverload, args: Any, kwargs: Any) -> Any:
        # The core's kernel would try those of libraries first, which read the memory of tensors.
        keys = _COMPOSITE if _kernels(func) else (DispatchKey.PrivateUse1, *_COMPOSITE)
        for key in keys:
            if func.has_kernel_for_dispatch_key(key):
                return func._op_dk(key, *args, **kwargs)
        return self._decompositions[func.name()](*args, **kwargs)

    def _note(
        self,
        func: OpOverload,
        route: str,
        reason: str,
        values: Any,
        parts: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        name = _served_name(func)
        # Where the CPU's kernels run on the chip's memory, composites of PyTorch end in these.
        in_parts = route == "decomposition" and self._cpu != "delegate" and opset.canonical(name) is not None
        lacking = route in ("fallback", "none") or in_parts
        entry = self.operators.setdefault((name, route), Operator(name, route, reason, lacking))
        tensors = [each for each in tree_leaves(values) if isinstance(each, Tensor)]
        entry.calls += 1
        entry.parts.update(parts)
        _keep(entry.dtypes, " ".join(dict.fromkeys(_name(each.dtype) for each in tensors)))
        _keep(
            entry.shapes, " ".join("x".join(map(str, each.shape)) or "scalar" for each in tensors[:_TENSORS])
        )
        self._count_part(name)

    def _count_part(self, name: str) -> None:
        if self._within:
            self._within[-1][1][name] += 1

    def _fake(self, func: OpOverload, args: Any, kwargs: Any) -> Any:
        """Return the result of a call without data; one that depends on values as if each element were 1."""
        try:
            return _WITHOUT_META.get(func.name(), func)(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            result = _result_for_ones(func, *args, **kwargs)
            self.guessed[func.name()] += 1
            return result


def _result_for_ones(func: OpOverload, tensor: Tensor, *rest: Any) -> Any:
    match func.name():
        case "aten::_local_scalar_dense" | "aten::item":
            return True if tensor.dtype is torch.bool else 1.0 if tensor.is_floating_point() else 1
        case "aten::equal":
            return True
        case "aten::nonzero":
            return tensor.new_empty((tensor.numel(), tensor.dim()), dtype=torch.int64)
        case "aten::masked_select":
            return tensor.new_empty(torch.broadcast_shapes(tensor.shape, rest[0].shape).numel())
        case "aten::index.Tensor":
            indices: list[Tensor | None] = []
            for index in rest[0]:
                is_mask = index is not None and index.dtype is torch.bool
                indices += (
                    index.new_empty((index.dim(), index.numel()), dtype=torch.int64) if is_mask else [index]
                )
            return func(tensor, indices)
    raise ModelError(f"the result of {func.name()} depends on values")


def _on_chip(values: Any) -> bool:
    """Whether a call is one of the chip, by its tensors or the device that it names."""
    for each in tree_leaves(values):
        device = each.device if isinstance(each, Tensor) else each
        if isinstance(device, torch.device) and device.type == _DEVICE.type:
            return True
    return False


def _is_fake(values: Any) -> bool:
    return all(isinstance(each, FakeTensor) for each in tree_leaves(values) if isinstance(each, Tensor))


def _is_composite(func: OpOverload) -> bool:
    return any(func.has_kernel_for_dispatch_key(key) for key in _COMPOSITE)


def _served_name(func: OpOverload) -> str:
    """Return the overload whose kernel serves an overload: "aten::add.Tensor" for ``add_``."""
    return opset.canonical(func.name()) or func.name()


def _kernels(func: OpOverload) -> list[tuple[str, int]]:
    """Return the library and the mask of dtypes of each kernel of an overload."""
    name = _served_name(func)
    return [(each.name, each.operators[name].dtypes) for each in libraries() if name in each.operators]


def _takes(kernels: Sequence[tuple[str, int]], dtypes: Set[str]) -> bool:
    needed = [DTYPES[name].code if name in DTYPES else -1 for name in dtypes]
    return any(all(code >= 0 and mask >> code & 1 for code in needed) for _, mask in kernels)


def _kernel_dtypes(func: OpOverload, args: Any, kwargs: Any, result: Any) -> set[str]:
    """Return the dtypes that a kernel gets: operands are promoted before the call (csrc/dispatch/kernel_call.cpp)."""
    promotes = torch.Tag.pointwise in func.tags or func._schema.name in _PROMOTING
    names = [each.name for each in func._schema.arguments]
    dtypes = {each.dtype for each in tree_leaves(result) if isinstance(each, Tensor)}
    operands: list[Any] = []
    for name, value in (*zip(names, args, strict=False), *kwargs.items()):
        tensors = [each for each in tree_leaves(value) if isinstance(each, Tensor)]
        if promotes and name not in _NOT_PROMOTED:
            operands += tensors or ([value] if isinstance(value, (int, float)) else [])
        else:
            dtypes |= {each.dtype for each in tensors}
    if dtypes == {torch.bool} and operands:
        dtypes.add(torch.result_type(*operands[:2]) if len(operands) > 1 else operands[0].dtype)
    return {_name(each) for each in dtypes}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _keep(examples: list[str], example: str) -> None:
    if example not in examples and len(examples) < _EXAMPLES:
        examples.append(example)
