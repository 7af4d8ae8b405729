"""Has a function of Megatron still the form that its patch was written for?"""

from __future__ import annotations

import hashlib
import inspect
from typing import TYPE_CHECKING, Any

from isthmus._support.patches import resolve

if TYPE_CHECKING:
    from isthmus.megatron.table import Replacement


_PREFIXES: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
    inspect.Parameter.KEYWORD_ONLY: "|",
}


def form(function: Any) -> str:
    """Names, kinds and plain defaults of the parameters, as text; annotations differ between Pythons."""
    parts = []
    for each in inspect.signature(function).parameters.values():
        default = ""
        if each.default is not inspect.Parameter.empty:
            plain = isinstance(each.default, (bool, int, float, str, type(None)))
            default = f"={each.default!r}" if plain else "=..."
        parts.append(f"{_PREFIXES.get(each.kind, '')}{each.name}{default}")
    return f"({', '.join(parts)})"


def signature_hash(function: Any) -> str:
    """Twelve hexadecimal digits of the SHA-256 of :func:`form`."""
    return hashlib.sha256(form(function).encode()).hexdigest()[:12]


def drift(each: Replacement) -> str:
    """Why a patch does not fit the Megatron that is imported; "" where it fits.

    Raises:
        isthmus._support.patches.PatchError: there is no such class or module.
    """
    if not each.signatures:
        return ""
    owner, name = resolve(f"{each.module}.{each.checked or each.name}")
    found = getattr(owner, name, None)
    if not callable(found):
        return "there is no such function in this version"
    if signature_hash(found) in each.signatures:
        return ""
    return (
        f"its signature is {form(found)} (hash {signature_hash(found)}), the patch was written for "
        f"{' or '.join(each.signatures)}"
    )
