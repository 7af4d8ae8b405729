"""The interface of a dialect of C to the printer, so that another chip's C is another target.

The printed text is C of a small vocabulary, which the target's header defines:

- the types of ``stdint.h`` and the functions of ``math.h``; ``memcpy`` and ``memset`` of arrays;
- GLOBAL: the memory that a kernel's pointers point to; INLINED, NOT_INLINED, ALIGNED;
- INDEPENDENT, before a loop whose iterations may run in any order;
- ``half_to_float`` and the other conversions of c/conversions.h; the functions of c/functions.h and c/special.h;
- ``atomic_add_i32`` ...: an update of memory by an operation and an element type, which returns the old value;
- ``product_rows``, ``product_panels`` and ``product_bfloat16``: products of matrices in arrays, as in c/products.h.
"""

from __future__ import annotations

from typing import Protocol

from isthmus_triton.ttir import Operation, Value

PLACES = [
    f"{kind}_{axis}" for kind in ("program", "grid") for axis in "xyz"
]  # first parameters of each function


class Target(Protocol):
    """A dialect of C.

    Attributes:
        is_checked: accesses and assertions are checked by a debugger.
        large_storage: qualifiers of arrays that are too large for the stack.
        atomics: types of elements that memory can be updated in at once.
        bfloat16_header: a line without which ``product_bfloat16`` is not defined.
    """

    is_checked: bool
    large_storage: str
    atomics: frozenset[str]
    bfloat16_header: str

    def headers(self) -> list[str]:
        """The first lines of the text, which define the vocabulary."""

    def failure(self, operation: Operation) -> str:
        """The statement of a failed ``tl.device_assert``; it ends the program.

        Raises:
            Unsupported: the target has none.
        """

    def entry(self, kernel: str, parameters: list[Value], asserts: bool, bound: str) -> list[str]:
        """The functions by which a launch calls ``program`` for each place of the grid.

        Args:
            kernel: its name.
            parameters: of ``program``, behind the places.
            asserts: a program may fail.
            bound: see :func:`isthmus_triton.ranges.largest`; "" if the launch need not know.

        Raises:
            Unsupported: an argument that the target cannot pass.
        """
