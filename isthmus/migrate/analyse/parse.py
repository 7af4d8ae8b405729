"""From a source to a module that detectors look at; what does not parse is a finding (IM001)."""

from __future__ import annotations

import ast
import json
import re
import warnings
from pathlib import Path

from isthmus.migrate.analyse.module import Module
from isthmus.migrate.findings import Finding
from isthmus.migrate.sources import Kind, Source, problem

_MAGIC = re.compile(r"^([ \t]*)(?:[!%?].*|[\w.]+\?{1,2}[ \t]*)$", re.MULTILINE)
_ASSIGNED_MAGIC = re.compile(r"^([ \t]*[\w, ]+=)[ \t]*[!%].*$", re.MULTILINE)


def parse(source: Source, package: str = "") -> tuple[Module | None, list[Finding]]:
    """The module of a Python file or a notebook, and what in it does not parse.

    Args:
        source: the file.
        package: dotted name of the package that the folder on that was asked for is; "" if it is none.
    """
    if source.kind is Kind.NOTEBOOK:
        return _notebook(source)
    try:
        return Module(
            source, _tree(source.text.removeprefix("\ufeff")), name=dotted(source.name, package)
        ), []
    except SyntaxError as error:
        return None, [_broken(source.name, error)]


def package_of(root: Path) -> str:
    """Dotted name of the package that a folder is, or in which a file lies; "" if there is none."""
    folder = root.resolve() if root.is_dir() else root.resolve().parent
    names: list[str] = []
    while (folder / "__init__.py").exists():
        names.insert(0, folder.name)
        folder = folder.parent
    return ".".join(names)


def dotted(name: str, package: str = "") -> str:
    """Dotted name of a file: ``"package.folder.module"``."""
    parts = name.rpartition(".")[0].split("/")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join([*([package] if package else []), *parts])


def _tree(text: str) -> ast.Module:
    """Raises SyntaxError, whatever the parser could not stand."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes are the user's affair
        try:
            flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # notebooks may wait at their top
            return compile(text, "<source>", "exec", flags, dont_inherit=True)
        except (RecursionError, MemoryError):
            raise SyntaxError("nested too deeply") from None
        except ValueError as error:
            raise SyntaxError(str(error)) from None


def _broken(path: str, error: SyntaxError) -> Finding:
    return problem(
        "IM001", path, f"does not parse: {error.msg}", "mend it, then analyse again", error.lineno or 0
    )


def _notebook(source: Source) -> tuple[Module | None, list[Finding]]:
    try:
        cells = [(number, _code(cell)) for number, cell in enumerate(json.loads(source.text)["cells"], 1)]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        message = "is no notebook of format 4"
        return None, [problem("IM001", source.name, message, "open it in Jupyter and save it again")]
    findings: list[Finding] = []
    texts: list[str] = []
    places: list[tuple[str, int]] = []
    for number, text in cells:
        path = f"{source.name}#cell{number}"
        try:
            code = _without_magics(text)
        except SyntaxError as error:
            findings.append(_broken(path, error))
            continue
        texts.append(code)
        places += [(path, line) for line in range(1, code.count("\n") + 1)]
    joined = "".join(texts)
    return Module(source, _tree(joined), text=joined, name=dotted(source.name), places=places), findings


def _code(cell: dict[str, object]) -> str:
    """Text of a code cell, "" for another or one in another language."""
    lines = cell["source"]
    if cell["cell_type"] != "code" or not isinstance(lines, (str, list)):
        return ""
    text = "".join(lines)  # a string, or a list of lines
    return "" if text.lstrip().startswith("%%") else "\n".join(text.splitlines()) + "\n"


def _without_magics(text: str) -> str:
    """A cell as plain Python, line for line.

    Raises:
        SyntaxError: it is none.
    """
    try:
        _tree(text)
    except SyntaxError:
        text = _ASSIGNED_MAGIC.sub(r"\1 None", _MAGIC.sub(r"\1pass", text))
        _tree(text)
    return text
