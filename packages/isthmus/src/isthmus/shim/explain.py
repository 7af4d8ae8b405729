"""``isthmus run --explain``: every patch of the shim, as text."""

from isthmus.shim import FEATURE, enter
from isthmus_common import patches


def explanation() -> str:
    """List the patches of the shim; enters it for a moment.

    Raises:
        RuntimeError: no accelerator is available, or a patch does not match the installed PyTorch.
    """
    with enter():
        applied = patches.active(FEATURE)
    if not applied:
        return "The accelerator is CUDA: no patches."
    width = max(len(patch.target) for patch in applied)
    lines = [f"{len(applied)} patches, undone when the shim exits:"]
    lines += [f"  {patch.target:<{width}}  {patch.reason}" for patch in applied]
    return "\n".join(lines)
