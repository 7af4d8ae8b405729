"""Puts Transformer Engine's layers on the module search path where it is absent."""

from __future__ import annotations

import functools
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from isthmus.patches import Scope

_FOLDER = str(Path(__file__).parent / "for_transformer_engine")


def provide(scope: Scope) -> None:
    """Let Megatron find the layers in ``for_transformer_engine``, unless the real ones are installed."""
    if PathFinder.find_spec("transformer_engine") is not None:
        return
    sys.path.append(_FOLDER)
    scope.record(
        "sys.path: for_transformer_engine",
        "Transformer Engine is absent: its linear layers, norms and attention by isthmus.ops",
        functools.partial(sys.path.remove, _FOLDER),
    )
