"""Generate ``schemas.json`` from the code generator files in PyTorch's wheel."""

from __future__ import annotations

import difflib
import importlib
import json
from pathlib import Path
from typing import Any

from isthmus import opset
from isthmus.opset.operator import Operator

FOLDER = Path(opset.__file__).parent
MODELS = FOLDER / "models.json"

_TAGS = ("core", "pointwise", "nondeterministic_seeded", "inplace_view", "dynamic_output_shape")
_NOT_INPUTS = frozenset({"name", "dispatch", "output_differentiability", "result"})

# Arguments that an operator writes to although PyTorch's schema does not declare it.
_UNDECLARED = {
    "aten::native_batch_norm": {"Tensor? running_mean": "Tensor(a!)? running_mean",
                                "Tensor? running_var": "Tensor(b!)? running_var"},
}  # fmt: skip


def files() -> dict[Path, str]:
    """Return schemas.json with its text."""
    operators = [operator for family in opset.FAMILIES for operator in _family(family)]
    table = records([each.name for each in operators if not each.schema], models())
    table |= {each.name: _extension(each) for each in operators if each.schema}
    return {FOLDER / "schemas.json": text(table)}


def models() -> dict[str, list[str]]:
    """Return the training steps that call an overload, by overload."""
    return json.loads(MODELS.read_text())


def _family(name: str) -> list[Operator]:
    return importlib.import_module(f"isthmus.opset.families.{name}").OPERATORS


def _extension(operator: Operator) -> dict[str, Any]:
    """Return the record of an operator that PyTorch does not have."""
    inputs = list(operator.differentiable)
    return {"schema": operator.schema, "variants": [], "tags": [], "differentiable": inputs, "models": []}


def _packaged() -> Path:
    import torchgen  # type: ignore[import-untyped]

    return Path(str(torchgen.__file__)).parent / "packaged"


def native_functions() -> dict[str, Any]:
    """Return every ATen function, including generated variants, by overload with its namespace."""
    from torchgen.gen import parse_native_yaml  # type: ignore[import-untyped]

    folder = _packaged() / "ATen" / "native"
    parsed = parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
    return {f"{f.namespace}::{f.func.name}": f for f in parsed.native_functions}


def groups(functions: dict[str, Any]) -> dict[str, list[str]]:
    """Return by overload its group: the functional, in-place and ``out=`` variants of one signature."""
    from torchgen.gen import get_grouped_native_functions
    from torchgen.model import NativeFunctionsGroup  # type: ignore[import-untyped]

    found: dict[str, list[str]] = {}
    for group in get_grouped_native_functions(list(functions.values())):
        members = list(group.functions()) if isinstance(group, NativeFunctionsGroup) else [group]
        names = [f"{f.namespace}::{f.func.name}" for f in members]
        found.update(dict.fromkeys(names, names))
    return found


def differentiable() -> dict[str, list[str]]:
    """Return by overload the arguments that have a derivative in PyTorch."""
    import yaml

    rows = yaml.safe_load((_packaged() / "autograd" / "derivatives.yaml").read_text())
    found: dict[str, list[str]] = {}
    for row in rows:
        name = "aten::" + row["name"].partition("(")[0]
        inputs = [part.strip() for key in row if key not in _NOT_INPUTS for part in key.split(",")]
        formulas = row.get("dispatch", {}).get("Default", {})
        inputs += [part.strip() for key in formulas if key not in _NOT_INPUTS for part in key.split(",")]
        found[name] = [each for each in inputs if each not in ("non_differentiable",)]
    return found


def records(names: list[str], models: dict[str, list[str]]) -> dict[str, Any]:
    """Return the record of each operator in ``schemas.json``.

    Raises:
        KeyError: PyTorch has no operator of that name.
    """
    functions, derivatives = native_functions(), differentiable()
    members = groups(functions)
    found = {}
    for name in sorted(names):
        if name not in functions:
            near = ", ".join(difflib.get_close_matches(name, functions, n=3))
            raise KeyError(f"PyTorch has no overload {name}" + (f"; similar: {near}" if near else ""))
        function, family = functions[name], members[name]
        inputs = next((derivatives[each] for each in (name, *family) if each in derivatives), [])
        found[name] = {
            "schema": _schema(name, f"{function.namespace}::{function.func}"),
            "variants": [each for each in family if each != name],
            "tags": sorted({t for each in family for t in functions[each].tags} & set(_TAGS)),
            "differentiable": inputs,
            "models": sorted({model for each in family for model in models.get(each, [])}),
        }
    return found


def _schema(name: str, declared: str) -> str:
    for wrong, right in _UNDECLARED.get(name, {}).items():
        if wrong not in declared:
            raise ValueError(f"{name}: PyTorch's schema has changed, no {wrong!r} in {declared}")
        declared = declared.replace(wrong, right)
    return declared


def text(table: dict[str, Any]) -> str:
    """Return JSON with one operator per line, so that diffs are readable."""
    rows = [f"{json.dumps(name)}: {json.dumps(table[name])}" for name in sorted(table)]
    return "{\n" + ",\n".join(rows) + "\n}\n"
