"""Find or add the DEVICE constant and imports of a module."""

import itertools
import re
import sys
from collections.abc import Iterable, Iterator

import libcst as cst
import libcst.matchers as m

from isthmus.migrate.convert import visible_devices
from isthmus.migrate.convert.rule import Context

_NAMES = ("DEVICE", "ACCELERATOR", "ACCELERATOR_DEVICE")
_NEUTRAL = '{torch}.accelerator.current_accelerator(check_available=True) or {torch}.device("cpu")'
_PINNED = '{torch}.device("{target}")'
_BLANK = cst.EmptyLine(indent=False)
_EXIT = m.Call(m.OneOf(m.Name("exit"), m.Attribute(m.Name("sys"), m.Name("exit"))))
_GIVES_UP = m.SimpleStatementLine([m.ZeroOrMore(), m.Raise() | m.Expr(_EXIT)])

Statement = cst.BaseStatement | cst.BaseSmallStatement
_IMPORTS = cst.Import | cst.ImportFrom


def look_for(module: cst.Module, context: Context) -> None:
    """Find the module's name of PyTorch, and its device constant or a free name for one."""
    context.torch = _torch(_always(module)) or _torch(module.body) or "torch"
    value = cst.parse_expression(_value(context))
    for name in _NAMES:
        for statement in module.body:
            if m.matches(statement, _assignment(name)) and value.deep_equals(_assigned(statement)):
                context.device = name
                context.claimed.add(statement)
                return
    numbered = (f"{_NAMES[-1]}_{number}" for number in itertools.count(2))
    candidates = itertools.chain(_NAMES, numbered)
    context.device = next(
        name
        for name in candidates
        if not _mentions(context.source, name) and name not in context.project.taken
    )


def taken(texts: Iterable[str]) -> frozenset[str]:
    """Return names that the device constant cannot have in a project with ``from module import *``.

    Such an import would bring the constant to modules that use the name for something else.

    Args:
        texts: the project's sources.
    """
    found: set[str] = set()
    imports_all = False
    for text in texts:
        imports_all = imports_all or "import *" in text
        found |= {name for name in _NAMES if _mentions(text, name) and not _defines(text, name)}
    return frozenset(found) if imports_all else frozenset()


def _defines(text: str, name: str) -> bool:
    """Whether a source already has the constant from an earlier conversion."""
    value = r"\w+\.(accelerator\.current_accelerator\(check_available=True\) or |device\(\"\w+\"\)$)"
    return re.search(rf"^{name} = {value}", text, re.MULTILINE) is not None


def add_to(module: cst.Module, context: Context) -> cst.Module:
    """Add the imports and the constant that the rules need and the module lacks."""
    wanted = [f"import {name}" for name in sorted(context.imports)]
    lines = [line for line in wanted if not _has(module.body, line)]
    for line in lines:
        is_standard = line.split()[1].partition(".")[0] in sys.stdlib_module_names
        module = _import_standard(module, line) if is_standard else _insert(module, _place(module, ""), line)
    defined = any(m.matches(statement, _assignment(context.device)) for statement in module.body)
    define = context.needs_device and not defined
    place = _place(module, context.device if define else "")
    if (context.needs_torch or define) and _torch(module.body[:place]) is None:
        module = _insert(module, place, "import torch")
        place += 1
    if define:
        module = _insert(module, place, f"{context.device} = {_value(context)}", apart=True)
    return module


def is_torch_optional(module: cst.Module) -> bool:
    """Whether a module imports PyTorch only under an `if` or `try`, and so may run without it."""
    return _torch(module.body) is not None and _torch(_always(module)) is None


def _always(module: cst.Module) -> Iterator[Statement]:
    """Yield top-level statements that always run, including those of `if` and `try` that cannot be skipped."""
    for statement in module.body:
        if isinstance(statement, cst.SimpleStatementLine | cst.With):
            yield statement
        elif isinstance(statement, cst.Try) and all(map(_gives_up, statement.handlers)):
            yield from statement.body.body


def _gives_up(handler: cst.ExceptHandler) -> bool:
    """Whether an exception handler ends the module."""
    return m.matches(handler.body.body[-1], _GIVES_UP)


def _value(context: Context) -> str:
    template = _PINNED if context.target else _NEUTRAL
    return template.format(torch=context.torch, target=context.target)


def _assignment(name: str) -> m.SimpleStatementLine:
    return m.SimpleStatementLine([m.Assign([m.AssignTarget(m.Name(name))])])


def _assigned(statement: Statement) -> cst.BaseExpression:
    return cst.ensure_type(cst.ensure_type(statement, cst.SimpleStatementLine).body[0], cst.Assign).value


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def _torch(body: Iterable[Statement]) -> str | None:
    """Return the name under which statements import PyTorch."""
    for line in _imports(body):
        for alias in line.names if isinstance(line, cst.Import) else ():
            name = alias.evaluated_name
            if alias.asname is None and name.partition(".")[0] == "torch":
                return "torch"
            if name == "torch":
                return alias.evaluated_alias
    return None


def _has(body: Iterable[Statement], line: str) -> bool:
    wanted = cst.ensure_type(cst.parse_statement(line), cst.SimpleStatementLine).body[0]
    return any(
        each.with_changes(semicolon=cst.MaybeSentinel.DEFAULT).deep_equals(wanted) for each in _imports(body)
    )


def _imports(body: Iterable[Statement]) -> Iterator[_IMPORTS]:
    """Yield module-level imports, including those under an `if`, `try` or `with`."""
    for statement in body:
        if isinstance(statement, cst.SimpleStatementLine):
            yield from (each for each in statement.body if isinstance(each, _IMPORTS))
        elif isinstance(statement, cst.If | cst.Try | cst.With | cst.Else | cst.Finally | cst.ExceptHandler):
            yield from _imports(statement.body.body)
            following = (getattr(statement, part, None) for part in ("orelse", "finalbody"))
            yield from _imports([part for part in following if part is not None])
            yield from _imports(getattr(statement, "handlers", ()))


def _place(module: cst.Module, name: str) -> int:
    """Return the index after the imports and before the first use of a name."""
    place = 1 if module.get_docstring() is not None else 0
    for index, statement in enumerate(module.body):
        if name and _mentions(module.code_for_node(statement), name):
            break
        if _is_import(statement) or (name and _chooses_devices(statement)):
            place = index + 1
    return place


def _chooses_devices(statement: Statement) -> bool:
    """Whether a statement sets the visible devices; the constant must come after it."""
    if isinstance(statement, cst.FunctionDef | cst.ClassDef):
        return False
    return any(True for _ in visible_devices.settings(cst.Module([]).code_for_node(statement)))


def _is_import(statement: Statement) -> bool:
    if isinstance(statement, cst.If) and _mentions(cst.Module([]).code_for_node(statement.test), "__name__"):
        return False
    return any(True for _ in _imports([statement]))


def _import_standard(module: cst.Module, line: str) -> cst.Module:
    """Add an import of the standard library among or before the module's leading imports."""
    imports = [each for each in module.body if _is_import(each) and not _is_future(each)]
    if not imports:
        return _insert(module, _place(module, ""), line)
    standard = list(itertools.takewhile(_is_standard, imports))
    earlier = [each for each in standard if "import" < _code(each) < line]
    if earlier:
        return _insert(module, module.body.index(earlier[-1]) + 1, line)
    index = module.body.index(imports[0])
    new = cst.parse_statement(line).with_changes(leading_lines=imports[0].leading_lines)
    following = imports[0].with_changes(leading_lines=[] if standard else [_BLANK])
    return module.with_changes(body=[*module.body[:index], new, following, *module.body[index + 1 :]])


def _is_standard(statement: Statement) -> bool:
    """Whether a line imports from the standard library, judged by its first name."""
    name = re.match(r"(?:import|from) (\w+)", _code(statement))
    return name is not None and name[1] in sys.stdlib_module_names


def _code(statement: Statement) -> str:
    """Return a line's source without comments and blank lines."""
    return cst.Module([]).code_for_node(statement.with_changes(leading_lines=[])).partition("#")[0].strip()


def _is_future(statement: Statement) -> bool:
    return m.matches(statement, m.SimpleStatementLine([m.ImportFrom(m.Name("__future__"))]))


def _insert(module: cst.Module, place: int, line: str, apart: bool = False) -> cst.Module:
    """Insert a line into a module; ``apart`` adds a blank line before and after."""
    new = cst.parse_statement(line)
    rest = list(module.body[place:])
    if apart:
        new = new.with_changes(leading_lines=[_BLANK])
        if rest and not rest[0].leading_lines:
            rest[0] = rest[0].with_changes(leading_lines=[_BLANK])
    return module.with_changes(body=[*module.body[:place], new, *rest])
