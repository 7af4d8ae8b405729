"""Arguments for every row: by rule from names and kinds, or those of case_arguments.py.

An argument of a case is a value, or OUT for a tensor that the row only writes.
"""

import ast
from typing import Any

import torch

from isthmus_ascend.generate.table import Row
from tests.runtime.case_arguments import CASES
from tests.runtime.meaning import overload
from tests.runtime.tensors import flags, positive, real, several, whole

OUT = object()
INTEGER_ROWS = ("Bitwise", "Shift", "Gcd")


def outputs(row: Row) -> set[str]:
    """Return the parameters that the row only writes."""
    tree = ast.parse(row.program.replace("; ", "\n"))
    written, read = set(), set()
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            written.add(node.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "resize":
            written.add(node.args[0].id)  # type: ignore[attr-defined]
            skipped.add(node.args[0])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            schema = overload(node.func)._schema
            given = list(zip((a.name for a in schema.arguments), node.args, strict=False))
            given += [(keyword.arg or "", keyword.value) for keyword in node.keywords]
            outs = {a.name for a in schema.arguments if a.is_out}
            for name, value in given:
                if name in outs and isinstance(value, ast.Name):
                    written.add(value.id)
                    skipped.add(value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in skipped:
            read.add(node.id)
    return {name for _, name in row.parameters if name in written - read}


def by_rule(row: Row, kind: str, name: str) -> Any:
    """Return an argument for a row of elementwise kind, from its kind and name."""
    integers = any(part in row.name for part in INTEGER_ROWS)
    if kind == "tensor":
        if name == "mask" or name == "cond":
            return flags(3, 4)
        if (name == "target" and "Loss" not in row.name) or row.name.startswith("Foreach"):
            return torch.tensor(0.75)
        return whole(3, 4, high=4) if integers or "Logical" in row.name else real(3, 4)
    if kind == "tensors":
        return several(positive if "Pow" in row.name or "Log" in row.name else real)
    return {
        "scalar": 3 if integers else 0.75, "scalars": [0.75, 1.5, -2.0], "ints": [1], "bools": [True],
        "int": 1, "int8": 0, "int32": 1,
        "bool": True, "double": 0.25, "float": 0.25, "dtype": torch.float32, "string": "tanh",
    }[kind]  # fmt: skip


def arguments(row: Row) -> list[Any]:
    """Return the arguments of a row's case."""
    written = outputs(row)
    if row.name in CASES:
        given = iter(CASES[row.name]())
        return [OUT if name in written else next(given) for _, name in row.parameters]
    return [OUT if name in written else by_rule(row, kind, name) for kind, name in row.parameters]
