"""The target of OpenCL C. A program is a work-group of one work-item; tensors are arrays of its private memory.

A pointer is an offset in bytes into a buffer: the parameters of the function ``run`` are a buffer and an offset for
each pointer, and a number for each scalar, in the order of the kernel's. Work-groups are the programs of the grid.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from isthmus_triton.expressions import IN_MEMORY, TO_MEMORY, c_type
from isthmus_triton.libdevice import KNOWN
from isthmus_triton.refusals import refuse
from isthmus_triton.ttir import Operation, Value

_HEADERS = ("opencl.h", "conversions.h", "functions.h", "special.h", "products.h")
_LACKING = frozenset("j0 j1 y0 y1 nearbyint roundeven".split())  # functions of KNOWN that OpenCL C has not
# Division and square root are rounded as everywhere; products and sums may become one operation by the pragma alone.
OPTIONS = "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt"


class OpenCL:
    """Prints a kernel ``run`` of OpenCL C.

    Args:
        fuses: a product and a sum may become one operation.
    """

    is_checked = False
    large_storage = ""
    atomics = frozenset("i32 i64 f32 f64".split())
    bfloat16_header = ""

    def __init__(self, fuses: bool = True) -> None:
        self._fuses = fuses

    def headers(self) -> list[str]:
        """See :class:`isthmus_triton.target.Target`."""
        return [f"#pragma OPENCL FP_CONTRACT {'ON' if self._fuses else 'OFF'}", _vocabulary()]

    def failure(self, operation: Operation) -> str:
        """See :class:`isthmus_triton.target.Target`."""
        return refuse("a device assertion, which OpenCL C cannot report")

    def entry(self, kernel: str, parameters: list[Value], asserts: bool, bound: str) -> list[str]:
        """See :class:`isthmus_triton.target.Target`."""
        declared, passed = [], []
        for place, each in enumerate(parameters):
            element = each.type.element
            if not each.type.is_pointer:
                # A float16 argument comes as float.
                type = c_type(each.type) if element in TO_MEMORY else IN_MEMORY[element]
                declared.append(f"const {type} a{place}")
                passed.append(f"a{place}")
                continue
            if element not in IN_MEMORY:
                refuse("pointers in memory, which OpenCL C has not")
            declared.append(f"__global uchar *a{place}, const ulong offset{place}")
            passed.append(f"({c_type(each.type)})(a{place} + offset{place})")
        places = [f"get_{what}({axis})" for what in ("group_id", "num_groups") for axis in range(3)]
        return [
            "__kernel __attribute__((reqd_work_group_size(1, 1, 1)))",
            f"void run({', '.join(declared)}) {{ program({', '.join([*places, *passed])}); }}",
        ]


@functools.cache
def _vocabulary() -> str:
    """The headers in one text, since a device compiles text. Functions of float are overloads of those of double."""
    folder = Path(__file__).parent / "c"
    texts = [(folder / name).read_text() for name in _HEADERS]
    names = [*sorted(KNOWN - _LACKING), "ilogb"]
    texts.insert(1, "\n".join(f"#define {name}f {name}" for name in names))
    return re.sub(r"^#(include|pragma once).*\n", "", "\n".join(texts), flags=re.MULTILINE)
