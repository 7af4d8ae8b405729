"""``torch.compile`` on the chip: AOT autograd, then eager kernels, until the chip has a compiler.

:func:`install` is called on ``import torch`` and imports neither Dynamo nor Inductor.
"""

from isthmus.graph.compile import install, uninstall

__all__ = ["install", "uninstall"]
