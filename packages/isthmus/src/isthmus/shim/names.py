"""The names ``__isthmus_*__`` in ``builtins`` that rewritten source calls while the hook is active."""

import builtins

from isthmus.shim import answers, device_text, rewrite, source_text

NAMES = {**answers.NAMES, **device_text.NAMES, **source_text.NAMES}


def offer() -> None:
    """Add the names to builtins."""
    vars(builtins).update(NAMES)


def withdraw() -> None:
    """Remove the names from builtins, unless rewritten modules still need them (untranslated)."""
    if not rewrite.has_compiled():
        for name in NAMES:
            vars(builtins).pop(name, None)
