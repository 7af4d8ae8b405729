"""Standing between PyTorch's dispatcher and the chip's kernels, for the operators that a tool watches.

While a probe watches an operator, the operator's PrivateUse1 kernel is a Python function that hands each call through
the probes to the kernel that was there before. Dispatch is process-wide, so that calls of every thread pass, those of
backward included. When the last probe lets go, the registration is destroyed and the former kernel is the table's
entry again: nothing stays on the path.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch._ops import OpOverload

from isthmus.debug.call import Call
from isthmus.opset.names import matches

KEY = "PrivateUse1"
# Nothing to compute: views and bare memory are not kernels, and collectives belong to their process group.
_NAMESPACES_LEFT_OUT = (
    "c10d",
    "_c10d_functional",
    "_c10d_functional_autograd",
    "prims",
    "profiler",
    "debugprims",
)
_LEFT_OUT = frozenset(
    """_copy_from _copy_from_and_resize _has_compatible_shallow_copy_type _local_scalar_dense _efficientzerotensor
    record_stream resize_ resize_as_ empty empty_strided empty_like new_empty new_empty_strided set_ set_data
    is_pinned _pin_memory is_set_to equal""".split()
)

Proceed = Callable[[], Any]


class NoOperator(ValueError):
    """A pattern matches no operator that can be watched; the message is one line."""


class Probe(Protocol):
    """A tool that sees calls.

    Attributes:
        nearest: whether it wants to be closer to the kernel than those that do not.
    """

    nearest: bool

    def around(self, call: Call, proceed: Proceed) -> Any:
        """See one call: ``proceed()`` runs it and returns its results, which are to be returned."""


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
    """Names of the overloads with a kernel of the chip that a pattern matches.

    Args:
        pattern: such as ``aten::mm``, ``*softmax*`` or ``add.Tensor``; with or without namespace and overload.

    Raises:
        NoOperator: there is none.
    """
    found = sorted(name for name in _all_with_kernel() if matches(name, pattern))
    if not found:
        raise NoOperator(
            f"{pattern}: no operator with a kernel on the chip matches; `isthmus ops` prints them"
        )
    return found


def _all_with_kernel() -> Iterator[str]:
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        if namespace in _NAMESPACES_LEFT_OUT or rest.partition(".")[0] in _LEFT_OUT:
            continue
        if _has_kernel(name, KEY) and not _is_whole_composite(name) and not _is_view(name):
            yield name


def _is_whole_composite(name: str) -> bool:
    """Whether the chip registers a composite's name only to take it apart itself; its parts are watched."""
    return _has_kernel(name, "CompositeImplicitAutograd") and not _has_kernel(name, "CPU")


def _has_kernel(name: str, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))


def _is_view(name: str) -> bool:
    try:
        returns = overload_named(name)._schema.returns
    except AttributeError:  # one that Python cannot reach
        return True
    return any(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def overload_named(name: str) -> OpOverload:
    """The overload of a name such as ``aten::add.Tensor``. Raises AttributeError."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")


def watch(probe: Probe, names: list[str]) -> None:
    """Show a probe every call of these overloads from now on. An earlier probe is closer to the kernel."""
    with _lock:
        for name in names:
            _probes.setdefault(name, []).append(probe)
        _register()


def forget(probe: Probe) -> None:
    """Show a probe nothing more."""
    with _lock:
        for name in [name for name, probes in _probes.items() if probe in probes]:
            _probes[name].remove(probe)
            if not _probes[name]:
                del _probes[name]
        _register()


def watched() -> list[str]:
    """Names of the overloads that a probe watches now."""
    return sorted(_probes)


def is_changing() -> bool:
    """Whether registrations are being made right now: a signal handler may have to come back later."""
    return _changing


@contextmanager
def quietly() -> Iterator[None]:
    """What runs inside, in this thread, is a tool's own work: no probe sees it, no autograd, mode or autocast."""
    before, _local.quiet = _local.quiet, True
    try:
        with torch.no_grad(), torch._C.DisableTorchFunction(), torch._C._DisableAutocast():
            yield
    finally:
        _local.quiet = before


def _register() -> None:
    """Make the dispatcher's entries what ``_probes`` says."""
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
    # Calls may be under way in kernels that are about to go, the one that this is called from among them.
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
                )  # of overriding a kernel
                library.impl(
                    op,
                    _entry(op, name, kernel, tuple(sorted(_probes[name], key=_is_far))),
                    KEY,
                    with_keyset=True,
                )


def _entry(op: OpOverload, name: str, kernel: Any, probes: tuple[Probe, ...]) -> Callable[..., Any]:
    """The Python kernel of one overload: through the probes to the kernel that was there."""
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
            proceed = _around(probe, call, proceed)
        _active += 1  # under the interpreter's lock
        try:
            return proceed()
        finally:
            _active -= 1

    return entry


def _is_far(probe: Probe) -> bool:
    return not probe.nearest


def _around(probe: Probe, call: Call, proceed: Proceed) -> Proceed:
    return lambda: probe.around(call, proceed)


class _Inside:
    """Runs a function where PyTorch takes Python numbers as tensors.

    PyTorch hands ``x + 2``'s 2, a tensor marked as a number, to a Python kernel as a number, and a kernel called in
    turn refuses it, unless the call comes from ``torch.ops.aten.add`` and its like. An object with
    ``__torch_function__`` is called inside of that.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return args[0].function()


def numbers_as_tensors(function: Callable[[], Any]) -> Any:
    """Run a function where PyTorch takes Python numbers for tensor arguments, as arithmetic with numbers does."""
    with torch._C._EnableTorchFunction():
        return torch.ops.aten.add.Tensor._op(_Inside(function), 0)


def call_on(op: OpOverload, key: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call an overload's kernel for a dispatch key; a number may stand where the schema says tensor.

    Not through ``op(...)``, which takes numbers for tensors in arithmetic alone.
    """
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    return numbers_as_tensors(lambda: op.redispatch(keys, *args, **kwargs))
