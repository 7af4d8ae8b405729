"""``isthmus megatron explain``: list the patches of the installed Megatron."""

import importlib
import warnings

from isthmus.megatron import adaptor, table
from isthmus_common import patches


def explanation() -> tuple[str, bool]:
    """List applied and failed patches; returns the text and whether all were applied.

    Raises:
        ImportError: megatron.core or a dependency is not installed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Megatron warns about optional packages
        core = importlib.import_module("megatron.core")
        for each in table.REPLACEMENTS:
            _import(each.module)
    left = adaptor.unapplied_patches()
    waiting = {f"sys.meta_path: {each.module}" for each in table.REPLACEMENTS}
    applied = [each for each in patches.active(adaptor.FEATURE) if each.target not in waiting]
    shim = patches.active("shim")
    width = max(len(each.target) for each in applied)
    lines = [
        f"megatron-core {core.__version__}: {len(applied)} patches; {len(shim)} patches of the CUDA shim"
    ]
    lines += [f"  {each.target:<{width}}  {each.reason}" for each in applied]
    if left:
        lines += ["", f"{len(left)} not applied, because they do not match this version:"]
        lines += [f"  {target}: {why}" for target, why in left.items()]
    return "\n".join(lines), not left


def _import(module: str) -> None:
    """Import the module of a patch; if that fails, report the patch as not applied."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        is_absent = error.name is not None and f"{module}.".startswith(f"{error.name}.")
        if is_absent and any(each.is_optional for each in table.REPLACEMENTS if each.module == module):
            return
        absent = "no such module in this version"
        adaptor.report_missing(module, absent if is_absent else f"its module cannot be imported: {error}")
