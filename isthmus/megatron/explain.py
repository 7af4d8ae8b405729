"""``isthmus megatron explain``: every patch of the Megatron that is here, as text."""

from __future__ import annotations

import importlib
import warnings

from isthmus._support import patches
from isthmus.megatron import adaptor, table


def explanation() -> tuple[str, bool]:
    """What the adaptor did and what it could not do, and whether there was nothing of the latter.

    Raises:
        ImportError: megatron.core, or what it needs, is not installed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Megatron's own, about what is not installed
        core = importlib.import_module("megatron.core")
        for each in table.REPLACEMENTS:
            _import(each.module)
    left = adaptor.left()
    waiting = {f"sys.meta_path: {each.module}" for each in table.REPLACEMENTS}
    applied = [each for each in patches.active(adaptor.FEATURE) if each.target not in waiting]
    shim = patches.active("shim")
    width = max(len(each.target) for each in applied)
    lines = [
        f"megatron-core {core.__version__}: {len(applied)} patches; {len(shim)} more of the shim for CUDA"
    ]
    lines += [f"  {each.target:<{width}}  {each.reason}" for each in applied]
    if left:
        lines += ["", f"{len(left)} not applied, for this Megatron is not one that they were written for:"]
        lines += [f"  {target}: {why}" for target, why in left.items()]
    return "\n".join(lines), not left


def _import(module: str) -> None:
    """Import a module that a patch belongs to; if that fails, the patch is reported as not applied."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        is_absent = error.name is not None and f"{module}.".startswith(f"{error.name}.")
        if is_absent and any(each.is_optional for each in table.REPLACEMENTS if each.module == module):
            return
        absent = "there is no such module in this version"
        adaptor.report_missing(module, absent if is_absent else f"its module cannot be imported: {error}")
