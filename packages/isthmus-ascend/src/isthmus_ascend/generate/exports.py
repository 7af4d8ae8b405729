"""Print the C functions that libopapi.so exports, with the exact types of their parameters, from its tables."""

from isthmus_ascend.generate.table import Row, older_rows, rows

# A parameter's C type by its kind; float and double are passed in registers of different contents.
C_TYPES = {
    "tensor": "const aclTensor*",
    "tensors": "const aclTensorList*",
    "scalar": "const aclScalar*",
    "scalars": "const aclScalarList*",
    "ints": "const aclIntArray*",
    "floats": "const aclFloatArray*",
    "bools": "const aclBoolArray*",
    "int": "int64_t",
    "int8": "int8_t",
    "int32": "int32_t",
    "dtype": "int32_t",
    "bool": "bool",
    "double": "double",
    "float": "float",
    "string": "const char*",
}
HEAD = """#include "opapi/calls.h"
#include "opapi/older/rows.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
#define PHASES(row, name, arguments, values) \\
  EXPORT int name##GetWorkspaceSize arguments { \\
    const isthmus::ascend::Argument given[] = values; \\
    return isthmus::ascend::prepare(row, given, size, executor); \\
  } \\
  EXPORT int name(void*, uint64_t, aclOpExecutor* executor, void* stream) { \\
    return isthmus::ascend::launch(executor, stream); \\
  }
#define A(...) (__VA_ARGS__, uint64_t* size, aclOpExecutor** executor)
#define V(...) {__VA_ARGS__}
"""
# Operators of which torch_npu asks the largest workspace of a captured graph: 0, as for all.
CAPTURED = ("FlashAttention", "FusedInferAttentionScore")
COUNT = "const size_t isthmus::ascend::kRowCount = sizeof kRows / sizeof *kRows;\n"


def export(index: int, row: Row) -> str:
    """Return both functions of a row."""
    arguments = ", ".join(f"{C_TYPES[kind]} {name}_" for kind, name in row.parameters)
    values = ", ".join(f"{name}_" for _, name in row.parameters)
    phases = f"PHASES({index}, aclnn{row.name}, A({arguments}), V({values}))\n"
    if not row.name.startswith(CAPTURED):
        return phases
    alias = f'__attribute__((alias("aclnn{row.name}GetWorkspaceSize")))'
    return f"{phases}EXPORT int aclnn{row.name}GetMaxWorkspaceSize A({arguments}) {alias};\n"


def source(table: list[Row], older: list[Row]) -> str:
    """Return the text of the C++ source."""
    texts = "".join(f"    {c_string(row.text)},\n" for row in [*table, *older])
    older_row = f"const int isthmus::ascend::kOlderRow = {len(table)};\n"
    functions = "".join(export(index, row) for index, row in enumerate(table))
    return f"{HEAD}\nconst char* const isthmus::ascend::kRows[] = {{\n{texts}}};\n{COUNT}{older_row}\n{functions}"


def c_string(text: str) -> str:
    """Return a C string literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


if __name__ == "__main__":
    print(source(rows(), older_rows()), end="")
