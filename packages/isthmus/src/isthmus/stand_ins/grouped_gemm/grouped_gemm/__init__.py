"""Matrix products of groups of rows (https://github.com/tgale96/grouped_gemm), implemented by :mod:`isthmus.ops`."""

from . import backend, ops

__version__ = "0.1.6+isthmus"
__all__ = ["backend", "ops"]
