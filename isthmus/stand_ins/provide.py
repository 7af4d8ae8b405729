"""Modules under the import paths that frameworks expect, for where the real ones are absent.

``isthmus run --provide flash_attn,apex`` puts a folder for each on the module search path of the job, so that
imports, ``find_spec`` and ``importlib.metadata`` all find it. A version ends in ``+isthmus``.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from pathlib import Path

_HERE = Path(__file__).parent
# What can be asked for, and the top-level modules that it brings.
PROVIDED = {
    "flash_attn": ("flash_attn",),
    "apex": ("apex", "amp_C", "fused_weight_gradient_mlp_cuda"),
    "transformer_engine": ("transformer_engine",),
}


def folders(names: str) -> list[str]:
    """Folders to put on the module search path.

    Args:
        names: of :data:`PROVIDED`, separated by commas.

    Raises:
        ValueError: there is no such thing to provide, or the real one is installed.
    """
    found = []
    for name in filter(None, (each.strip() for each in names.split(","))):
        if name not in PROVIDED:
            raise ValueError(f"cannot provide {name!r}; what can be is {', '.join(PROVIDED)}")
        folder = str(_HERE / name)
        for module in PROVIDED[name]:
            spec = PathFinder.find_spec(module)
            # A mere folder of that name has no origin; an import prefers the module that is provided to it.
            if spec is not None and spec.origin and not spec.origin.startswith(folder):
                raise ValueError(
                    f"cannot provide {name}: the real {module} is installed ({spec.origin}); leave {name} out of "
                    "--provide, or uninstall it"
                )
        found.append(folder)
    return found
