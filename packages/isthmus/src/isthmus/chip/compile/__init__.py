"""``torch.compile`` on the chip: the CPU's compiler where it reaches the memory, elsewhere the graph backend.

:func:`install` is called on ``import torch`` and imports neither Dynamo nor Inductor.
"""

from isthmus.chip.compile.compile import install, uninstall

__all__ = ["install", "uninstall"]
