"""Where operator calls on the chip went."""

from __future__ import annotations

from typing import Any

from isthmus import _C


def dispatch_stats() -> dict[str, Any]:
    """Counts since the start or the last reset.

    Returns:
        ``operators``: overload name -> {"route", "calls"}, for those called at least once;
        ``calls``: route -> number of calls; ``fallback_bytes``: bytes that the fallback route copied;
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


def set_strict(strict: bool) -> None:
    """Whether an operator that would take the fallback route raises instead (ISTHMUS_STRICT)."""
    _C.set_strict(strict)
