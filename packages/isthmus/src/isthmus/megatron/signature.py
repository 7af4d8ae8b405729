"""Check that functions of Megatron have the signatures for which patches were written."""

from __future__ import annotations

import hashlib
import inspect
from typing import TYPE_CHECKING, Any

from isthmus_common.patches import resolve

if TYPE_CHECKING:
    from isthmus.megatron.table import Replacement


_PREFIXES: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
    inspect.Parameter.KEYWORD_ONLY: "|",
}


def form(function: Any) -> str:
    """Names, kinds and plain defaults of the parameters as text, without annotations (they depend on Python)."""
    parts = []
    for each in inspect.signature(function).parameters.values():
        default = ""
        if each.default is not inspect.Parameter.empty:
            plain = isinstance(each.default, (bool, int, float, str, type(None)))
            default = f"={each.default!r}" if plain else "=..."
        parts.append(f"{_PREFIXES.get(each.kind, '')}{each.name}{default}")
    return f"({', '.join(parts)})"


def signature_hash(function: Any) -> str:
    """The first twelve hexadecimal digits of the SHA-256 of :func:`form`."""
    return hashlib.sha256(form(function).encode()).hexdigest()[:12]


def drift(each: Replacement) -> str:
    """Return why a patch does not match the imported Megatron; "" if it does.

    Raises:
        isthmus_common.patches.PatchError: no such class or module.
    """
    if not each.signatures:
        return ""
    owner, name = resolve(f"{each.module}.{each.checked or each.name}")
    found = getattr(owner, name, None)
    if not callable(found):
        return "no such function in this version"
    if signature_hash(found) in each.signatures:
        return ""
    return (
        f"its signature is {form(found)} (hash {signature_hash(found)}), the patch was written for "
        f"{' or '.join(each.signatures)}"
    )
