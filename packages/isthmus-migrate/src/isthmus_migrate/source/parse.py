"""Parser from sources to modules; a source that does not parse is a finding (IM001)."""

import json
import re
from pathlib import Path

from isthmus_migrate.source.files import Kind, Source, problem
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.notebooks import TOO_DEEP, code_cells
from isthmus_migrate.source.notebooks import parse as tree_of
from isthmus_migrate.source.surroundings import ALONE, Surroundings

CELL = "# isthmus: cell "  # the line before each cell in the text of a notebook
_LINE_END = re.compile(r"\r\n?")


def parse(
    source: Source, package: str = "", around: Surroundings = ALONE
) -> tuple[Module | None, list[Finding]]:
    """Parse a Python file or a notebook; return the module and findings of syntax errors.

    Args:
        source: the file.
        package: dotted name of the analysed folder if it is a package, else "".
        around: see :class:`Module`.
    """
    if around.is_too_deep:
        return None, [too_deep(source.name)]
    if source.kind is Kind.NOTEBOOK:
        return _notebook(source, around)
    text = source.text.removeprefix("\ufeff")
    try:
        tree = tree_of(text)
    except SyntaxError as error:
        return None, [_syntax_finding(source.name, error)]
    return Module(source, tree, text=text, name=dotted(source.name, package), around=around), []


def too_deep(path: str) -> Finding:
    """Return the finding of a file whose expressions are nested too deeply to be followed."""
    message, advice = (f"is {TOO_DEEP}", "split its longest chain of calls or operators, then analyse again")
    return problem("IM001", path, message, advice)


def package_of(root: Path) -> str:
    """Return the dotted name of the package of a folder or file, or ""."""
    folder = root.resolve() if root.is_dir() else root.resolve().parent
    names: list[str] = []
    while (folder / "__init__.py").exists():
        names.insert(0, folder.name)
        folder = folder.parent
    return ".".join(names)


def dotted(name: str, package: str = "") -> str:
    """Return the dotted name of a file: ``"package.folder.module"``."""
    parts = name.rpartition(".")[0].split("/")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join([*([package] if package else []), *parts])


def _syntax_finding(path: str, error: SyntaxError) -> Finding:
    if error.msg == TOO_DEEP:
        return too_deep(path)
    return problem(
        "IM001", path, f"does not parse: {error.msg}", "fix the syntax, then analyse again", error.lineno or 0
    )


def _notebook(source: Source, around: Surroundings) -> tuple[Module | None, list[Finding]]:
    try:
        cells = list(code_cells(json.loads(source.text)))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        message = "is not a notebook of format 4"
        return None, [problem("IM001", source.name, message, "open it in Jupyter and save it again")]
    findings: list[Finding] = []
    texts: list[str] = []
    places: list[tuple[str, int]] = []
    for cell in cells:
        path = f"{source.name}#cell{cell.number}"
        if cell.error is not None:
            findings.append(_syntax_finding(path, cell.error))
            continue
        texts.append(f"{CELL}{cell.number}\n" + _LINE_END.sub("\n", cell.code) + "\n")
        places += [(path, max(line, 1)) for line in range(texts[-1].count("\n"))]
    joined = "".join(texts)
    name, tree = dotted(source.name), tree_of(joined)
    return Module(source, tree, text=joined, name=name, around=around, places=places), findings
