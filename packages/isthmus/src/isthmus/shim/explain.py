"""``isthmus run --explain``: every patch and every rewriting rule of the shim, as text."""

from isthmus.shim import FEATURE, enter, rules
from isthmus_common import patches


def explanation() -> str:
    """List the patches and rules of the shim; enters it for a moment.

    Raises:
        RuntimeError: no accelerator is available, or a patch does not match the installed PyTorch.
    """
    with enter():
        applied = patches.active(FEATURE)
    if not applied:
        return "The accelerator is CUDA: no patches, no rewriting."
    width = max(len(patch.target) for patch in applied)
    lines = [f"{len(applied)} patches, undone when the shim exits:"]
    lines += [f"  {patch.target:<{width}}  {patch.reason}" for patch in applied]
    lines += ["", f"{len(rules.SYNTAX)} rules for the source of the user's modules:"]
    for rule in rules.SYNTAX:
        lines += [f"  {rule.name}: {rule.before}  ->  {rule.after}", f"    because {rule.reason}"]
    return "\n".join(lines)
