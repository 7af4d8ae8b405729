"""Warnings raised below a proxy name the line of the user that called it, as without the shim.

PyTorch attributes a warning to the innermost Python frame, or to a frame above its own, which is the proxy's. It is
raised again for the frame that called the proxy: filters, and the registry by which a line warns once, are that
frame's.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

from isthmus_common import package_folders
from isthmus_common.patches import Scope


def install(scope: Scope) -> None:
    """Attribute warnings to the callers of proxies."""
    filters = list(warnings.filters)
    # Every warning of a proxy has to come to _showwarnmsg, whatever the filters say of other modules.
    warnings.filterwarnings("always", module=r"isthmus\.")
    added = [entry for entry in warnings.filters if entry not in filters]
    scope.record("warnings.filters", "lets the filters of the caller decide", lambda: _remove(added))
    scope.replace("warnings._showwarnmsg", _relocating, "a warning names the caller of a proxy")


def _remove(entries: list[Any]) -> None:
    for entry in entries:
        if entry in warnings.filters:
            warnings.filters.remove(entry)  # type: ignore[attr-defined]
    getattr(warnings, "_filters_mutated", lambda: None)()


def _relocating(original: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(original)
    def show(message: Any) -> None:
        proxy = _frame_of(message) if _is_ours(message.filename) else None
        caller = _caller(proxy)
        if proxy is None or caller is None:
            original(message)
            return
        proxy.f_globals["__warningregistry__"] = None  # or the proxy's line would warn once for all callers
        getattr(warnings, "onceregistry", {}).pop(
            (str(message.message), message.category), None
        )  # noted above
        warnings.warn_explicit(
            message.message,
            message.category,
            caller.f_code.co_filename,
            caller.f_lineno,
            module=caller.f_globals.get("__name__"),
            registry=caller.f_globals.setdefault("__warningregistry__", {}),
            source=message.source,
        )

    return show


def _is_ours(path: str) -> bool:
    return path.startswith(package_folders.folders())


def _frame_of(message: Any) -> FrameType | None:
    """The frame on the stack to which a warning is attributed."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (frame.f_code.co_filename, frame.f_lineno) != (
        message.filename,
        message.lineno,
    ):
        frame = frame.f_back
    return frame


def _caller(frame: FrameType | None) -> FrameType | None:
    while frame is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame
