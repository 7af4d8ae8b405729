"""The package's options, for ``isthmus env``. :mod:`isthmus_triton.debug.requests` reads them, with or without it."""

from isthmus_common.options import Option, Table

# fmt: off
OPTIONS = (
    Option("triton_debug", "switch", "0", "isthmus-triton",
           "check each access of Triton kernels, and the order of their programs, at every launch"),
    Option("triton_seed", "integer", None, "isthmus-triton",
           "seed of the order of programs in such launches; empty: drawn, and printed", least=0, most=2**31 - 1),
)
# fmt: on
TABLE = Table(OPTIONS)
