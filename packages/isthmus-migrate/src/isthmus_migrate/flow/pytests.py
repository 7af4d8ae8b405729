"""Values that pytest passes to the parameters of tests: by ``parametrize``, and by fixtures of the same names."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from isthmus_migrate.flow.expressions import Expressions
from isthmus_migrate.flow.facts import ANY
from isthmus_migrate.source.names import Function

_FIXTURES = frozenset({"pytest.fixture", "pytest_asyncio.fixture"})
PARAMETRIZE = "pytest.mark.parametrize"


def pass_values(gatherer: Expressions, function: Function) -> None:
    """Record what the decorators of a function, and of its class, and the fixtures pass to its parameters."""
    module = gatherer.module
    if not module.mentions("pytest", "def test"):
        return
    owner = module.parents[function]
    decorators = [
        *function.decorator_list,
        *(owner.decorator_list if isinstance(owner, ast.ClassDef) else ()),
    ]
    name = gatherer.names.defined(function)
    parameters = {each.arg for each in (*function.args.args, *function.args.kwonlyargs)}
    for each in decorators:
        called = each.func if isinstance(each, ast.Call) else each
        meaning = gatherer.names.qualified(called)
        if meaning in _FIXTURES:
            _record_fixture(gatherer, function, each)
        elif meaning == PARAMETRIZE and isinstance(each, ast.Call):
            for parameter, slot in _parametrized(gatherer, each):
                if parameter in parameters:
                    gatherer.flow(slot, f"{name}.{parameter}")
    for place in _places(module.name):
        for parameter in parameters:
            gatherer.flow(_slot(place, parameter), f"{name}.{parameter}")


def parameter(gatherer: Expressions, call: ast.Call, result: str) -> str:
    """``pytest.param("cuda", marks=...)``: the value, or those of several parameters."""
    for index, each in enumerate(call.args):
        gatherer.store(gatherer.slot(each), result, str(index))
    if len(call.args) == 1:
        gatherer.flow(gatherer.slot(call.args[0]), result)
    return result


def _parametrized(gatherer: Expressions, call: ast.Call) -> Iterator[tuple[str, str]]:
    """Yield the parameters that a decorator names, with the slots of their values."""
    given = {each.arg: each.value for each in call.keywords}
    names = call.args[0] if call.args else given.get("argnames")
    values = call.args[1] if len(call.args) > 1 else given.get("argvalues")
    if values is None or names is None:
        return
    row = gatherer.load(gatherer.slot(values), ANY, values)
    if isinstance(names, ast.Constant) and isinstance(names.value, str):
        split = [each.strip() for each in names.value.split(",") if each.strip()]
        if len(split) == 1:
            yield split[0], row
            return
    else:
        split = [str(getattr(each, "value", "")) for each in getattr(names, "elts", ())]
    for index, each in enumerate(split):
        yield each, gatherer.load(row, str(index), call)


def _record_fixture(gatherer: Expressions, function: Function, decorator: ast.expr) -> None:
    """Record the values of a fixture: what it returns or yields, from what ``request.param`` is."""
    name = gatherer.names.defined(function)
    given = {each.arg: each.value for each in decorator.keywords} if isinstance(decorator, ast.Call) else {}
    gatherer.flow(gatherer.load(gatherer.slot(given.get("params")), ANY, decorator), f"{name}.request.param")
    for node in ast.walk(function):
        if isinstance(node, ast.Yield):
            gatherer.flow(gatherer.slot(node.value), f"{name}()")
    called = given.get("name")
    shown = str(called.value) if isinstance(called, ast.Constant) else function.name
    module = gatherer.module
    is_shared = module.name.rpartition(".")[2] == "conftest"
    gatherer.flow(f"{name}()", _slot(module.name.rpartition(".")[0] if is_shared else module.name, shown))


def _places(module: str) -> Iterator[str]:
    """Yield the module, and the folders above it, whose fixtures it sees."""
    while module:
        yield module
        module = module.rpartition(".")[0]
    yield ""


def _slot(place: str, name: str) -> str:
    return f"fixture:{place}:{name}"
