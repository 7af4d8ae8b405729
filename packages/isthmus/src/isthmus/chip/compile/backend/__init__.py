"""The graph backend: ``torch.compile`` for a chip that has kernels and no compiler.

AOTAutograd's graphs are lowered to operators of the chip's libraries, fused, planned and run.
"""

from isthmus.chip.compile.backend.compile import compile_graph
from isthmus.chip.compile.backend.settings import Settings

__all__ = ["Settings", "compile_graph"]
