"""Where operator calls on the chip went."""

from __future__ import annotations

from typing import Any

from isthmus import _C


def dispatch_stats() -> dict[str, Any]:
    """Counts since the start or the last reset.

    Returns:
        ``operators``: overload name -> {"route", "calls"}, for those called at least once;
        ``calls``: route -> number of calls; ``fallback_bytes``: bytes that the fallback route copied;
        ``kernel_copy_bytes``: bytes made contiguous, cast or brought from the CPU because a kernel asks for it;
        ``set_device``: calls of the driver's device_set.
    """
    return _C.dispatch_stats()


def reset_dispatch_stats() -> None:
    """Start counting again from 0."""
    _C.reset_dispatch_stats()


def routes() -> dict[str, tuple[str, str]]:
    """Overload name -> (route, reason) of every ATen overload.

    The route is native, kernel, delegate, decomposition, fallback, or none where a call raises.
    """
    return _C.routes()


def kernel_choices() -> list[dict[str, str]]:
    """What kernels were chosen so far: operator, dtypes, layout, library ("" where none served the call)."""
    return _C.kernel_choices()


def set_route(pattern: str, route: str) -> int:
    """Force a route on operators, at once and for every thread (ISTHMUS_ROUTE).

    Args:
        pattern: such as ``aten::mm``, ``*softmax*``, ``add.Tensor``.
        route: kernel, delegate, decomposition or fallback (CPU, over copies); "" gives back the driver's own order.

    Returns:
        Number of overloads that have the route and now take it.

    Raises:
        ValueError: another route, or no operator that matches has it.
    """
    count = _C.force_route(pattern, route)
    if not count:
        raise ValueError(
            f"{pattern}: no operator of this driver has the route {route!r}; `isthmus ops` prints them"
        )
    return count


def serve_extension(name: str) -> bool:
    """Let the driver's operator libraries serve an operator that a package has defined with PyTorch.

    For one that has a composite kernel, which PyTorch would take otherwise.

    Args:
        name: overload with its namespace, such as ``isthmus::rms_norm``.

    Returns:
        Whether a library has a kernel for it.
    """
    return _C.serve_extension(name)


def set_fused_attention(requested: bool) -> None:
    """Ask that ``scaled_dot_product_attention`` goes to the operator ``isthmus::attention`` where that serves it.

    Without the request it does so where the driver's operator libraries have a kernel for that operator.
    """
    _C.set_fused_attention(requested)


def fused_attention() -> bool:
    """Whether ``scaled_dot_product_attention`` goes to ``isthmus::attention``: by request or by a library."""
    return _C.fused_attention()


def set_tracing(tracing: bool) -> None:
    """Whether each new choice of a route is printed to standard error (ISTHMUS_TRACE)."""
    _C.set_tracing(tracing)


def set_strict(strict: bool) -> None:
    """Whether an operator that would take the fallback route raises instead (ISTHMUS_STRICT)."""
    _C.set_strict(strict)
