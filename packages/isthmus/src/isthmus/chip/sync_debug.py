"""Detect operators that make the host wait for the chip: ``item``, blocking copies, ``nonzero`` ..."""

from isthmus import _C

_MODES = ("default", "warn", "error")


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Set the reaction to operators that make the host wait for the chip, on all threads.

    Explicit synchronization (``torch.chip.synchronize``, streams, events) is not reported.

    Args:
        debug_mode: ``"default"`` or 0: none; ``"warn"`` or 1: a warning; ``"error"`` or 2: RuntimeError.

    Raises:
        ValueError: unknown mode.
    """
    mode = _MODES.index(debug_mode) if debug_mode in _MODES else debug_mode
    if mode not in (0, 1, 2):
        raise ValueError(f"expected 'default', 'warn' or 'error' (0, 1, 2), got {debug_mode!r}")
    _C.set_sync_debug_mode(int(mode))


def get_sync_debug_mode() -> int:
    """The mode: 0 default, 1 warn, 2 error."""
    return _C.sync_debug_mode()
