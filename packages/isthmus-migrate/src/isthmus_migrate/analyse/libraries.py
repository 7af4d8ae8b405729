"""Imports of libraries, and of compiled extensions, that do not support other accelerators (IM301 to IM303)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from isthmus_migrate.rules.apex import public_name
from isthmus_migrate.source.findings import Finding, Severity
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import text
from isthmus_migrate.source.third_party import LIBRARIES, library

_TOPS = frozenset(name.partition(".")[0] for name in LIBRARIES)
# Modules whose parts have entries of their own.
_WHOLES = frozenset(name[: dot.start()] for name in LIBRARIES for dot in re.finditer(r"\.", name))
_IMPORT = re.compile(r"\b(?:import|from)\s+(\w+)")
_EXTENSION = re.compile(
    r"(?:\w+\.)*(?:\w+_cuda(?:_\w+)?|cuda_\w+)"
)  # a name of a compiled extension for CUDA
_BUILD = "build it for the target too, or write its operators in PyTorch"
_UNUSED, _REMOVE = "is imported, not used", "remove the import"
_MISSING = {"ImportError", "ModuleNotFoundError", "Exception", ""}
_SAID = {"IM301": "is written for CUDA", "IM302": "has a stand-in"}
_BY_NAME = {"importlib.import_module", "importlib.util.find_spec"}


def detect(module: Module) -> Iterator[Finding]:
    """Yield a finding per import or use of a part, or per library that only needs attention."""
    found: dict[tuple[int, int, str], Finding] = {}
    for each in _find_libraries(module):  # two imports of a module have the same uses
        place = each.line, each.column, each.subject
        if place not in found or each.severity is Severity.MANUAL:
            found[place] = each
    seen: set[str] = set()
    for each in sorted(found.values(), key=lambda each: (each.path, each.line, each.column)):
        entry = library(each.subject)
        if each.code != "IM303" or entry is None or each.message == _UNUSED:
            yield each
        elif entry[0] not in seen:
            seen.add(entry[0])
            yield each._replace(subject=entry[0])


def _find_libraries(module: Module) -> Iterator[Finding]:
    words = ("import_module", "find_spec", "_cuda", "cuda_")
    if _TOPS.isdisjoint(_IMPORT.findall(module.text)) and not module.mentions(*words):
        return
    for statement in module.of(ast.Import):
        for alias in statement.names:
            yield from _import(module, statement, alias.name)
            yield from _extension(module, statement, alias.name)
    for origin in module.of(ast.ImportFrom):
        if origin.module and not origin.level:
            found = {f"{origin.module}.{alias.name}" for alias in origin.names}
            by_entry = {(entry[0] if (entry := library(name)) else name): name for name in sorted(found)}
            for name in by_entry.values():
                yield from _import(module, origin, name)
            yield from _extension(module, origin, origin.module)
    for call in module.of(ast.Call):
        if module.names.qualified(call.func) in _BY_NAME and call.args:
            asked = getattr(call.args[0], "value", None)
            if isinstance(asked, str):
                yield from _library_finding(module, call, call, asked)
                yield from _extension(module, call, asked)


def _import(module: Module, statement: ast.stmt, name: str) -> Iterator[Finding]:
    """Yield the findings of an import, or of the used parts that have entries: ``apex.optimizers.FusedAdam``."""
    entry = library(name)
    uses = list(_parts(module, name)) if name in _WHOLES else []
    known = {found[0]: (node, used) for node, used in reversed(uses) if (found := library(used))}
    if entry is not None and (not known or entry[0] in known):
        yield from _library_finding(module, statement, statement, name)
    for part, (node, used) in known.items():
        if entry is None or part != entry[0]:
            yield from _library_finding(module, node, statement, used)


def _extension(module: Module, node: ast.stmt | ast.expr, name: str) -> Iterator[Finding]:
    """Yield the finding of a module that is named like a compiled extension for CUDA and is no source here."""
    if not _EXTENSION.fullmatch(name) or name.startswith("torch.") or library(name):
        return
    path = Path(name.replace(".", "/"))
    folders = module.source.path.resolve().parents[: module.source.name.count("/") + 1]
    if not any((each / path).is_dir() or (each / path).with_suffix(".py").exists() for each in folders):
        yield module.finding("IM303", Severity.REVIEW, node, name, "is a compiled extension for CUDA", _BUILD)


def _parts(module: Module, name: str) -> Iterator[tuple[ast.expr, str]]:
    """Yield the uses of a module's names."""
    for node in module.of(ast.Attribute):
        if not isinstance(module.parents[node], ast.Attribute):
            used = module.names.qualified(node) or ""
            if used.startswith(f"{name}."):
                yield node, used


def _library_finding(
    module: Module, node: ast.stmt | ast.expr, statement: ast.AST, name: str
) -> Iterator[Finding]:
    found = library(name)
    if found is None or _is_of_rule(module, name, found[0]):
        return
    code, severity, advice = found[1]
    said = _SAID.get(code, "has a counterpart in PyTorch" if code.startswith("IM2") else "needs attention")
    if severity is Severity.MANUAL and (why := _optional(module, statement)):
        severity = Severity.REVIEW
        said += f", {why}"
    elif node is statement and _is_unused(module, statement):
        said, advice = _UNUSED, _REMOVE
    yield module.finding(code, severity, node, name, said, advice)


def _is_unused(module: Module, statement: ast.AST) -> bool:
    """Whether nothing uses the names that an import binds; not said of a package's own, which others may import."""
    if not isinstance(statement, ast.Import | ast.ImportFrom) or module.source.path.name == "__init__.py":
        return False
    bound = {(each.asname or each.name).partition(".")[0] for each in statement.names}
    read = {each.id for each in module.of(ast.Name)} | {text(each) for each in module.of(ast.Constant)}
    is_known = "*" not in bound and bound.isdisjoint(read)
    return is_known and not _optional(module, statement) and not any(map(module.is_shared, bound))


def _is_of_rule(module: Module, name: str, entry: str) -> bool:
    """Whether a conversion rule has found a name, or a part of the entry that it converts."""
    known = (name, entry, public_name(name))
    subjects = [subject for each in module.findings for subject in each.subject.split(", ")]
    return any(subject in known or subject.startswith(f"{name}.") for subject in subjects)


def _optional(module: Module, node: ast.AST) -> str:
    """Return why a script may do without an import; "" if it may not."""
    inner = node
    for outer in module.enclosing(node):
        if isinstance(outer, ast.If):
            return "but imported under a condition only"
        if isinstance(outer, ast.Try) and inner in outer.body:
            is_handled = any(map(_goes_on, outer.handlers)) and not _repeats(outer.handlers, node)
            return "but the script continues without it" if is_handled else ""
        inner = outer
    return ""


def _repeats(handlers: list[ast.ExceptHandler], statement: ast.AST) -> bool:
    """Whether a handler imports the same again."""
    code = ast.dump(statement)
    return any(ast.dump(each) == code for handler in handlers for each in ast.walk(handler))


def _goes_on(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {each.id if isinstance(each, ast.Name) else "" for each in caught}
    return bool(names & _MISSING) and not any(isinstance(each, ast.Raise) for each in handler.body)
