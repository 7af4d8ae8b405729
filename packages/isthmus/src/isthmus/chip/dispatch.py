"""Routes of operator calls on the chip: statistics and settings."""

import contextlib
from collections.abc import Iterator
from typing import Any

from isthmus import _C
from isthmus.chip import registration


def dispatch_stats() -> dict[str, Any]:
    """Dispatch counters since process start or the last reset.

    Returns:
        ``operators``: overload name -> {"route", "calls"}, for called overloads;
        ``calls``: route -> number of calls; ``refused``: overload name -> number of calls that no route served;
        ``fallback_bytes``: bytes copied by the fallback route;
        ``kernel_copy_bytes``: bytes made contiguous, cast or copied from the CPU for kernels;
        ``set_device``: calls of the driver's device_set.
    """
    return _C.dispatch_stats()


def reset_dispatch_stats() -> None:
    """Reset the dispatch counters to 0."""
    _C.reset_dispatch_stats()


def routes() -> dict[str, tuple[str, str]]:
    """Overload name -> (route, reason) of every ATen overload.

    The route is native, kernel, delegate, decomposition, fallback, or none if a call raises.
    """
    return _C.routes()


def kernel_choices() -> list[dict[str, str]]:
    """Kernels chosen so far: operator, dtypes, layout, library ("" if no kernel supports the call)."""
    return _C.kernel_choices()


def set_route(pattern: str, route: str) -> int:
    """Force a route for operators, on all threads (ISTHMUS_ROUTE).

    Args:
        pattern: such as ``aten::mm``, ``*softmax*``, ``add.Tensor``.
        route: kernel, delegate, decomposition or fallback (CPU, over copies); "" restores the driver's order.

    Returns:
        Number of matching overloads that support the route.

    Raises:
        ValueError: unknown route, or no matching operator supports it.
    """
    count = _C.force_route(pattern, route)
    if not count:
        raise ValueError(
            f"{pattern}: no operator of this driver supports the route {route!r}; `isthmus ops` lists them"
        )
    return count


def serve_extension(name: str) -> bool:
    """Prefer the kernel of the driver's operator libraries for an operator defined by a package.

    Needed for operators with a composite kernel, which PyTorch would call instead.

    Args:
        name: overload with its namespace, such as ``isthmus::rms_norm``.

    Returns:
        Whether a library has a kernel for it.
    """
    return _C.serve_extension(name)


def set_fused_attention(requested: bool) -> None:
    """Whether ``scaled_dot_product_attention`` uses the operator ``isthmus::attention`` where it applies.

    If False, it does so only if the driver's operator libraries have a kernel for that operator.
    """
    _C.set_fused_attention(requested)


def fused_attention() -> bool:
    """Whether ``scaled_dot_product_attention`` uses ``isthmus::attention``, by request or by a library's kernel."""
    return _C.fused_attention()


def set_tracing(tracing: bool) -> None:
    """Print each new choice of a route to standard error (ISTHMUS_TRACE)."""
    _C.set_tracing(tracing)


def set_strict(strict: bool) -> None:
    """Raise instead of taking the fallback route (ISTHMUS_STRICT)."""
    _C.set_strict(strict)


def set_batch_invariant(on: bool) -> None:
    """Compute each row with the same bits whatever its batch, on all threads (ISTHMUS_BATCH_INVARIANT).

    The bits of a row then do not depend on the other rows, their number, its position among them or the number of
    threads: in products of floating-point matrices, attention, normalizations, softmax, activations and reductions
    along other dimensions than that of the rows. Gradients are computed by the same kernels.

    Raises:
        RuntimeError: the driver neither lets the CPU address its memory nor declares ``batch_invariant``, or the CPU
            kernels of :mod:`isthmus.ops` cannot run.
    """
    if on:
        registration.check_batch_invariant()
    _C.set_batch_invariant(on)


def is_batch_invariant() -> bool:
    """Whether the batch-invariant mode is on."""
    return _C.batch_invariant()


@contextlib.contextmanager
def batch_invariant(on: bool = True) -> Iterator[None]:
    """Set the batch-invariant mode in a block, or a function that this decorates; see :func:`set_batch_invariant`.

    The mode is the process's: other threads take part in it.
    """
    before = is_batch_invariant()
    set_batch_invariant(on)
    try:
        yield
    finally:
        set_batch_invariant(before)
