"""The meaning of a row in Python: its program evaluated with torch.ops.aten, apart from the C++ that runs it."""

import ast
from collections.abc import Callable, Sequence
from typing import Any

import torch

from isthmus_ascend.generate.table import Row


def overload(node: ast.expr) -> torch._ops.OpOverload:
    """Return the ATen overload that `name` or `name.overload` means."""
    if isinstance(node, ast.Name):
        return getattr(torch.ops.aten, node.id).default
    assert isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    return getattr(getattr(torch.ops.aten, node.value.id), node.attr)


def functional(called: torch._ops.OpOverload) -> Callable[..., Any]:
    """Return the overload without outputs that computes what an out or an in-place overload does."""
    schema = called._schema
    if not any(argument.alias_info and argument.alias_info.is_write for argument in schema.arguments):
        return called
    kept = [(a.name, str(a.type)) for a in schema.arguments if not a.is_out]
    packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::").rstrip("_"), None)
    for name in packet.overloads() if packet else ():
        candidate = getattr(packet, name)
        parts = [(a.name, str(a.type)) for a in candidate._schema.arguments]
        if parts[: len(kept)] == kept and all(
            a.kwarg_only and not a.is_out for a in candidate._schema.arguments[len(kept) :]
        ):
            return candidate
    return lambda **given: called(**{name: copied(value) for name, value in given.items()})


def copied(value: Any) -> Any:
    """Return a copy with the same strides."""
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage().clone()
        return torch.empty(0, dtype=value.dtype).set_(
            storage, value.storage_offset(), value.shape, value.stride()
        )
    return [copied(element) for element in value] if isinstance(value, list) else value


class Meaning:
    """Evaluates one row. `results` maps the written parameters to the values that they must have afterwards."""

    def __init__(self, row: Row, arguments: Sequence[Any]) -> None:
        self.names = {name: value for (_, name), value in zip(row.parameters, arguments, strict=True)}
        self.parameters = [name for _, name in row.parameters]
        self.results: dict[str, Any] = {}
        for statement in ast.parse(row.program.replace("; ", "\n")).body:
            self.run(statement)

    def run(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Assign):
            target, value = statement.targets[0], self.value(statement.value)
            pairs = (
                zip(target.elts, value, strict=False) if isinstance(target, ast.Tuple) else [(target, value)]
            )
            for name, part in pairs:
                assert isinstance(name, ast.Name)
                (self.results if name.id in self.parameters else self.names)[name.id] = part
        else:
            assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
            self.write(statement.value)

    def write(self, call: ast.Call) -> None:
        """Evaluate a call for what it writes into its arguments."""
        if isinstance(call.func, ast.Name) and call.func.id == "resize":
            assert isinstance(call.args[0], ast.Name)
            self.results[call.args[0].id] = self.value(call.args[1])
            return
        called = overload(call.func)
        given = dict(zip((a.name for a in called._schema.arguments), call.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        written = [a.name for a in called._schema.arguments if a.alias_info and a.alias_info.is_write]
        values = functional(called)(
            **{
                a.name: self.fitted(self.value(given[a.name]), a.type)
                for a in called._schema.arguments
                if a.name in given and not a.is_out
            }
        )
        for name, value in zip(written, values if len(written) > 1 else [values], strict=False):
            node = given[name]
            assert isinstance(node, ast.Name)
            self.results[node.id] = value

    def value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return self.names[node.id]
        if isinstance(node, ast.List):
            return [self.value(element) for element in node.elts]
        if not isinstance(node, ast.Call):
            return ast.literal_eval(node)
        arguments = [self.value(argument) for argument in node.args]
        if isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
            return FUNCTIONS[node.func.id](*arguments)
        called = overload(node.func)
        types = [a.type for a in called._schema.arguments]
        arguments = [self.fitted(value, kind) for value, kind in zip(arguments, types, strict=False)]
        return called(
            *arguments, **{keyword.arg: self.value(keyword.value) for keyword in node.keywords if keyword.arg}
        )

    @staticmethod
    def fitted(value: Any, kind: Any) -> Any:
        """Return the value as PyTorch's schema takes it."""
        text = str(kind)
        if text in ("float", "Optional[float]") and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if value is None and text.startswith("List"):
            return []
        if text == "List[Optional[Tensor]]":
            return [None if index.numel() == 0 else index for index in value]
        return value


def number_like(number: float, value: Any) -> torch.Tensor:
    """Return a number as a tensor that changes no dtype of its kind."""
    floats = isinstance(value, torch.Tensor) and value.is_floating_point()
    return torch.tensor(number, dtype=value.dtype if floats else None)


def wide(tensor):
    """Return 16-bit floats in float32."""
    return tensor if tensor is None or tensor.itemsize != 2 else tensor.float()


# Functions that check or arrange their first argument; its values stay.
CHECKS = (
    "one_sided shaped by_channel matrix up_to heads gradient filled of_pairs divisible bags by_row "
    "below castable mode ctc_targets"
).split()
FUNCTIONS = {
    **dict.fromkeys(CHECKS, lambda value, *_: value),
    "dtype": lambda tensor: tensor.dtype,
    "positive": lambda number: number if number > 0 else None,
    "nonempty": lambda values: values if values is not None and len(values) else None,
    "floating": lambda tensor: tensor if tensor.is_floating_point() else tensor.double(),
    "wide": lambda value: [wide(each) for each in value] if isinstance(value, list) else wide(value),
    "wide_dtype": lambda dtype: torch.float32 if dtype and dtype.itemsize == 2 else dtype,
    "long": lambda tensor: tensor.long(),
    "choice": lambda number, *values: values[number],
    "within": lambda indices, of, dims: indices.long(),
    "divisor": lambda value, other: other if isinstance(other, torch.Tensor) else number_like(other, value),
    "classes": lambda target, of, ignored: target.long(),
    "scalar": lambda tensor: tensor.item(),
    "numbers": lambda values, like: torch.tensor(values),
    "unless": lambda number, absent: None if number == absent else number,
    "transposed": lambda tensor: tensor if tensor.dim() < 2 else tensor.transpose(-2, -1),
}
