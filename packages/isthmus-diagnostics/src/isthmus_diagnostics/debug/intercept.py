"""Interception of calls between PyTorch's dispatcher and the chip's kernels.

While a probe watches an operator, the operator's PrivateUse1 kernel is a Python function that passes each call
through the probes to the previous kernel. Dispatch is process-wide: calls of all threads pass, backward included.
When the last probe is removed, the registration is destroyed and the previous kernel is restored.
"""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch._ops import OpOverload

from isthmus.opset.names import matches
from isthmus_diagnostics.debug.call import Call, signature

KEY = "PrivateUse1"
# These compute nothing (views, uninitialized memory) or belong to a process group (collectives).
_NAMESPACES_LEFT_OUT = (
    "c10d",
    "_c10d_functional",
    "_c10d_functional_autograd",
    "prims",
    "profiler",
    "debugprims",
)
# Calls that manage memory or read a number.
MEMORY = frozenset(
    """_copy_from _copy_from_and_resize _has_compatible_shallow_copy_type _local_scalar_dense _efficientzerotensor
    record_stream resize_ resize_as_ empty empty_strided empty_like new_empty new_empty_strided set_ set_data
    is_pinned _pin_memory is_set_to equal""".split()
)

Proceed = Callable[[], Any]


class NoOperator(ValueError):
    """A pattern matches no operator that can be intercepted; the message is one line."""


class Probe(Protocol):
    """A tool that intercepts calls.

    Attributes:
        nearest: whether it runs closer to the kernel than other probes.
    """

    nearest: bool

    def around(self, call: Call, proceed: Proceed) -> Any:
        """Handle one call: ``proceed()`` runs it and returns its results, which `around` must return."""


class _Local(threading.local):
    quiet = False


_local = _Local()
_lock = threading.RLock()
_probes: dict[str, list[Probe]] = {}
_libraries: list[torch.library.Library] = []
_registered: list[OpOverload] = []
_retired: list[Any] = []
_active = 0
_changing = False


def overloads(pattern: str) -> list[str]:
    """Return the names of the overloads with a chip kernel that match a pattern.

    Args:
        pattern: such as ``aten::mm``, ``*softmax*`` or ``add.Tensor``; with or without namespace and overload.

    Raises:
        NoOperator: no overload matches.
    """
    found = sorted(name for name in _all_with_kernel() if matches(name, pattern))
    if not found:
        raise NoOperator(
            f"{pattern}: matches no operator with a kernel on the chip; `isthmus ops` lists them"
        )
    return found


def _all_with_kernel() -> Iterator[str]:
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        if namespace in _NAMESPACES_LEFT_OUT or rest.partition(".")[0] in MEMORY:
            continue
        if _has_kernel(name, KEY) and not _is_whole_composite(name) and not _is_view(name):
            yield name


def _is_whole_composite(name: str) -> bool:
    """Return whether the operator is a composite: the operators it calls are intercepted instead."""
    return _has_kernel(name, "CompositeImplicitAutograd") and not _has_kernel(name, "CPU")


def _has_kernel(name: str, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))


def _is_view(name: str) -> bool:
    try:
        return signature(overload_named(name)).is_view
    except AttributeError:  # not reachable from Python
        return True


def overload_named(name: str) -> OpOverload:
    """Return the overload of a name such as ``aten::add.Tensor``. Raises AttributeError."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")


def watch(probe: Probe, names: list[str]) -> None:
    """Pass calls of these overloads to a probe. An earlier probe is closer to the kernel."""
    with _lock:
        for name in names:
            _probes.setdefault(name, []).append(probe)
        _register()


def forget(probe: Probe) -> None:
    """Stop passing calls to a probe."""
    with _lock:
        for name in [name for name, probes in _probes.items() if probe in probes]:
            _probes[name].remove(probe)
            if not _probes[name]:
                del _probes[name]
        _register()


def intercepted_overloads() -> list[str]:
    """Return the names of all intercepted overloads."""
    return sorted(_probes)


def is_changing() -> bool:
    """Return whether registrations are changing: a signal handler must retry later."""
    return _changing


@contextmanager
def hide_calls() -> Iterator[None]:
    """Hide this thread's calls, the tool's own work, from probes, autograd, modes and autocast."""
    before, _local.quiet = _local.quiet, True
    try:
        with torch.no_grad(), torch._C.DisableTorchFunction(), torch._C._DisableAutocast():
            yield
    finally:
        _local.quiet = before


def _register() -> None:
    """Update the dispatcher's entries from ``_probes``."""
    global _changing
    _changing = True
    try:
        _unregister()
        _register_probes()
    finally:
        _changing = False


def _unregister() -> None:
    if _active == 0:
        _retired.clear()
    # Calls may still be running in these kernels, perhaps the one that led here.
    _retired.extend(torch.library.get_kernel(op, KEY) for op in _registered)
    _registered.clear()
    while _libraries:
        _libraries.pop()._destroy()


def _register_probes() -> None:
    by_namespace: dict[str, list[str]] = {}
    for name in _probes:
        by_namespace.setdefault(name.partition("::")[0], []).append(name)
    for namespace, names in by_namespace.items():
        library = torch.library.Library(namespace, "IMPL")
        _libraries.append(library)
        for name in names:
            op = overload_named(name)
            kernel = torch.library.get_kernel(op, KEY)
            _registered.append(op)
            with warnings.catch_warnings():
                warnings.filterwarnings(
                    "ignore", "Warning only once for all operators"
                )  # the warning about overriding a kernel
                library.impl(
                    op,
                    _entry(op, name, kernel, tuple(sorted(_probes[name], key=_is_far))),
                    KEY,
                    with_keyset=True,
                )


def _entry(op: OpOverload, name: str, kernel: Any, probes: tuple[Probe, ...]) -> Callable[..., Any]:
    """Make the Python kernel of one overload: through the probes to the previous kernel."""
    takes_tensor = [isinstance(a.type, torch.TensorType) for a in op._schema.arguments]

    def original(keys: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def run() -> Any:
            return kernel.call_boxed(keys, *args, **kwargs)

        numbers = any(
            takes and isinstance(a, (bool, int, float, complex))
            for takes, a in zip(takes_tensor, args, strict=False)
        )
        return numbers_as_tensors(run) if numbers else run()

    def entry(keys: Any, *args: Any, **kwargs: Any) -> Any:
        global _active
        if _local.quiet:
            return original(keys, args, kwargs)
        call = Call(name, op, args, kwargs)

        def run() -> Any:
            return original(keys, args, kwargs)

        proceed: Proceed = run
        for probe in probes:
            proceed = _wrap_proceed(probe, call, proceed)
        _active += 1  # under the interpreter's lock
        try:
            return proceed()
        finally:
            _active -= 1

    return entry


def _is_far(probe: Probe) -> bool:
    return not probe.nearest


def _wrap_proceed(probe: Probe, call: Call, proceed: Proceed) -> Proceed:
    return lambda: probe.around(call, proceed)


class _Inside:
    """A function to run where PyTorch accepts Python numbers as tensors.

    In ``x + 2``, PyTorch passes the 2 to a Python kernel as a number, and another kernel refuses it as a tensor
    argument, except inside ``torch.ops.aten.add`` and similar operators. Such an operator calls the
    ``__torch_function__`` of this object.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return args[0].function()


def numbers_as_tensors(function: Callable[[], Any]) -> Any:
    """Run a function where PyTorch accepts Python numbers as tensor arguments."""
    with torch._C._EnableTorchFunction():
        return torch.ops.aten.add.Tensor._op(_Inside(function), 0)


def call_on(op: OpOverload, key: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call an overload's kernel for a dispatch key; a number may replace a tensor argument.

    Unlike ``op(...)``, which accepts numbers as tensors only in arithmetic.
    """
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    return numbers_as_tensors(lambda: op.redispatch(keys, *args, **kwargs))
