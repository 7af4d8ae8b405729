"""Finding what makes the host wait for the chip: ``item``, copies that are not asynchronous, ``nonzero`` ..."""

from __future__ import annotations

from isthmus import _C

_MODES = ("default", "warn", "error")


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """What happens where an operator makes the host wait for the chip, on every thread.

    Explicit waits (``torch.chip.synchronize``, of streams and events) are what they say and are not told of.

    Args:
        debug_mode: ``"default"`` or 0: nothing; ``"warn"`` or 1: a warning; ``"error"`` or 2: RuntimeError.

    Raises:
        ValueError: another mode.
    """
    mode = _MODES.index(debug_mode) if debug_mode in _MODES else debug_mode
    if mode not in (0, 1, 2):
        raise ValueError(f"expected 'default', 'warn' or 'error' (0, 1, 2), got {debug_mode!r}")
    _C.set_sync_debug_mode(int(mode))


def get_sync_debug_mode() -> int:
    """0 default, 1 warn, 2 error."""
    return _C.sync_debug_mode()
