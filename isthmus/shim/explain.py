"""``isthmus run --explain``: every patch and every rewriting rule of the shim, as text."""

from __future__ import annotations

from isthmus._support import patches
from isthmus.shim import FEATURE, enter, rules


def explanation() -> str:
    """Enter the shim, list what it does, leave it.

    Raises:
        RuntimeError: there is no accelerator, or PyTorch is not one that the patches were written for.
    """
    with enter():
        applied = patches.active(FEATURE)
    if not applied:
        return "The accelerator is CUDA: nothing is patched and nothing is rewritten."
    width = max(len(patch.target) for patch in applied)
    lines = [f"{len(applied)} patches, undone when the shim is left:"]
    lines += [f"  {patch.target:<{width}}  {patch.reason}" for patch in applied]
    lines += ["", f"{len(rules.SYNTAX)} rules for the source of the user's own modules:"]
    for rule in rules.SYNTAX:
        lines += [f"  {rule.name}: {rule.before}  ->  {rule.after}", f"    because {rule.reason}"]
    return "\n".join(lines)
