"""Writes a header with the aclnn functions as C++ objects that have the types of functions.table.

Usage: python -m tools.ascend.functions FILE.h
"""

import sys
from pathlib import Path

from tools.ascend.exports import C_TYPES, write_if_changed
from tools.ascend.table import Row, rows

# The class of csrc/drivers/ascend/operators/aclnn.h that a parameter is made of, by its kind; others are plain.
CLASSES = {
    "tensor": "Tensor",
    "tensors": "Tensors",
    "scalar": "Scalar",
    "scalars": "Scalars",
    "ints": "Ints",
    "floats": "Floats",
    "bools": "Bools",
    "dtype": "Dtype",
}


def declaration(row: Row) -> str:
    """Return the object of a function."""
    types = (CLASSES.get(kind, f"Plain<{C_TYPES[kind]}>") for kind, _ in row.parameters)
    return f'inline Function<{", ".join(types)}> {row.name}{{"aclnn{row.name}"}};\n'


def header(table: list[Row]) -> str:
    """Return the text of the header."""
    objects = "".join(map(declaration, table))
    return f"#pragma once\n\nnamespace isthmus::npu::aclnn {{\n\n{objects}\n}}  // namespace isthmus::npu::aclnn\n"


if __name__ == "__main__":
    write_if_changed(Path(sys.argv[1]), header(rows()))
