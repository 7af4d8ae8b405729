"""The device constant and the imports that the edits of a module need, as edits."""

import ast
import itertools
import re
import sys
from collections.abc import Iterator, Sequence

from isthmus_migrate.source import constants, visible_devices
from isthmus_migrate.source.edits import Edit
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.parse import CELL

_OWN = {"torch", "device"}


def definitions(module: Module, edits: Sequence[Edit]) -> Iterator[Edit]:
    """Yield edits that add what other edits need and the module lacks."""
    needs = frozenset().union(*(edit.needs for edit in edits))
    body = module.tree.body
    define = "device" in needs and not constants.defines(module.tree, module.device)
    place = _place(module, edits if define else ())
    lines: list[str] = []
    if (needs & _OWN) and not constants.torch_name(ast.Module(body[:place], [])):
        lines.append("import torch")
    if define:
        lines.append(f"{module.device} = {_value(module)}")
    for name in sorted(needs - _OWN):
        if not _imports(body, name):
            yield from _import_standard(module, f"import {name}", lines if place == 0 else [])
    if lines:
        yield _insertion(module, place, lines, apart=define)


def _value(module: Module) -> str:
    """Return the source of the device constant's value, in the quotation marks that the project configures."""
    value = constants.device_value(
        module.torch, module.around.target, module.around.torch, module.around.project.late_choice
    )
    return value.replace('"', module.around.quote or '"')


def _imports(body: Sequence[ast.stmt], name: str) -> bool:
    """Whether a module imports a module under its own name."""
    plain = (each for each in constants.imports(body) if isinstance(each, ast.Import))
    return any(alias.name == name and alias.asname is None for each in plain for alias in each.names)


def _place(module: Module, edits: Sequence[Edit]) -> int:
    """Return the index of the first statement after the imports, and not after the first use of the constant."""
    uses = [edit.start for edit in edits if "device" in edit.needs]
    place = 1 if ast.get_docstring(module.tree, clean=False) is not None else 0
    for index, statement in enumerate(module.tree.body):
        start, end = _first_offset(module, statement), module.end(statement)
        if any(start <= use <= end for use in uses):
            break
        if _is_import(statement) or (edits and _chooses_devices(statement)):
            place = index + 1
    return place


def _first_offset(module: Module, statement: ast.stmt) -> int:
    """Return the offset of a statement's first character, decorators included."""
    decorators = getattr(statement, "decorator_list", [])
    return min(map(module.start, [statement, *decorators]))


def _is_import(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If) and "__name__" in ast.dump(statement.test):
        return False
    return any(True for _ in constants.imports([statement]))


def _chooses_devices(statement: ast.stmt) -> bool:
    """Whether a statement sets the visible devices; the constant must come after it."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    return any(True for _ in visible_devices.settings(statement))


def _insertion(module: Module, place: int, lines: list[str], apart: bool) -> Edit:
    """Return the insertion of lines before a top-level statement, with blank lines around them if ``apart``."""
    body, text = module.tree.body, module.text
    newline = "\r\n" if "\r\n" in text else "\n"
    if 0 < place < len(body) and body[place].lineno == body[place - 1].end_lineno:  # import torch; x.cuda()
        return _first_at(module.start(body[place]), "".join(f"{line}; " for line in lines))
    if place == 0:
        offset = _after_comments(text) if not body else _offset_above(module, body[0])
        return _first_at(offset, "".join(line + newline for line in lines) + (newline if apart else ""))
    offset = module.line_start((body[place - 1].end_lineno or 0) + 1)
    start = "" if text[:offset].endswith(("\n", "\r")) else newline
    if not apart:
        return _first_at(offset, start + "".join(line + newline for line in lines))
    *imports, constant = lines
    block = [*imports, "", constant]
    if text[offset:].strip() and not re.match(rf"[ \t]*[\r\n]|{CELL}", text[offset:]):
        block.append("")
    return _first_at(offset, start + "".join(line + newline for line in block))


def _first_at(offset: int, text: str) -> Edit:
    """Return an insertion before any other at its place."""
    return Edit(offset, offset, text, span=-sys.maxsize)


def _offset_above(module: Module, statement: ast.stmt) -> int:
    return module.line_start(module.text.count("\n", 0, _first_offset(module, statement)) + 1)


def _after_comments(text: str) -> int:
    return len(text)


def _import_standard(module: Module, line: str, following: list[str]) -> Iterator[Edit]:
    """Yield the insertion of an import of the standard library among or before the module's leading imports."""
    newline = "\r\n" if "\r\n" in module.text else "\n"
    imports = [each for each in module.tree.body if _is_import(each) and not _is_future(each)]
    if not imports:
        place = _place(module, ())
        if place == 0:
            following.insert(0, line)
        else:
            yield _insertion(module, place, [line], apart=False)
        return
    standard = list(itertools.takewhile(_is_standard, imports))
    earlier = [each for each in standard if "import" < ast.unparse(each) < line]
    if earlier:
        offset = module.line_start((earlier[-1].end_lineno or 0) + 1)
        yield Edit(offset, offset, line + newline)
    else:
        offset = module.line_start(imports[0].lineno)
        yield Edit(offset, offset, line + newline + ("" if standard else newline))


def _is_standard(statement: ast.stmt) -> bool:
    """Whether a line imports from the standard library, judged by its first name."""
    name = re.match(r"(?:import|from) (\w+)", ast.unparse(statement))
    return name is not None and name[1] in sys.stdlib_module_names


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
