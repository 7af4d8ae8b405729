"""Print a header with the aclnn functions as C++ objects that have the types of functions.table."""

from isthmus_ascend.generate.exports import C_TYPES
from isthmus_ascend.generate.table import Row, rows

# The class of csrc/driver/operators/aclnn.h that a parameter is made of, by its kind; others are plain.
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
    print(header(rows()), end="")
