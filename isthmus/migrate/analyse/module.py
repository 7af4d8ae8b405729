"""The inputs of detectors: a module, and the project as a whole.

A detector of a module is a function ``(module: Module) -> Iterator[Finding]``; it runs in a worker process, and no
tree outlives it. A detector that needs the whole project has two steps: ``gather(module)`` runs in the worker and
returns a small picklable value, ``judge(project)`` runs at the end on all of them.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from isthmus.migrate.analyse.names import Index, Names, index
from isthmus.migrate.source.files import Source
from isthmus.migrate.source.findings import Finding, Severity
from isthmus.migrate.source.own_methods import own_cuda

Node = TypeVar("Node", bound=ast.AST)


class Module:
    """A Python source (or the code cells of a notebook), parsed.

    Attributes:
        source: the file.
        text: the Python text; for a notebook, that of its code cells.
        tree: syntax tree of the text.
        name: dotted name, ``"package.module"``.

    Args:
        own_cuda: a class of the project in another file with its own method ``cuda``, if any.
        places: for notebooks, each line's path and line; line n of the text is ``places[n - 1]``.
    """

    def __init__(
        self,
        source: Source,
        tree: ast.Module,
        *,
        text: str | None = None,
        name: str = "",
        own_cuda: str = "",
        places: Sequence[tuple[str, int]] = (),
    ) -> None:
        self.source = source
        self.text = source.text if text is None else text
        self.tree = tree
        self.name = name
        self._own_cuda = own_cuda
        self._places = places

    @cached_property
    def lines(self) -> list[str]:
        """Lines of the text as counted by Python, without line ends."""
        return self.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")

    @cached_property
    def own_cuda(self) -> str:
        """The project's class whose method a call of ``cuda`` may refer to, or ""."""
        return self._own_cuda or own_cuda(self.text)

    @cached_property
    def _index(self) -> Index:
        return index(self.tree, self.name, self.source.path.name == "__init__.py")

    @property
    def names(self) -> Names:
        """Resolver: ``names.qualified(node)`` is ``"torch.cuda.synchronize"`` or None."""
        return self._index.names

    @property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The parent of every node."""
        return self._index.parents

    def of(self, kind: type[Node]) -> list[Node]:
        """Return every node of exactly this type, in source order."""
        return self._index.nodes.get(kind, [])  # type: ignore[return-value]

    def mentions(self, *words: str) -> bool:
        """Whether any of the words occurs in the text, for a quick check first."""
        return any(word in self.text for word in words)

    def enclosing(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the ancestors of a node, innermost first."""
        parent = self.parents.get(node)
        while parent is not None:
            yield parent
            parent = self.parents.get(parent)

    def finding(
        self, code: str, severity: Severity, node: ast.AST, subject: str, message: str, advice: str
    ) -> Finding:
        """Make a finding at a node; in a notebook, its path ends in ``#cell<n>`` and lines count within the cell."""
        line: int = getattr(node, "lineno", 0)
        end: int = getattr(node, "end_lineno", None) or line
        path, first = self._places[line - 1] if self._places and line else (self.source.name, line)
        column = self._column(node, line)
        return Finding(code, severity, path, first, first + end - line, subject, message, advice, column)

    def _column(self, node: ast.AST, line: int) -> int:
        """Return the column in characters, from 1; the parser counts bytes of UTF-8."""
        offset: int = getattr(node, "col_offset", 0)
        if line == 0 or self.text.isascii():
            return offset + 1
        return len(self.lines[line - 1].encode()[:offset].decode(errors="ignore")) + 1


class Project(NamedTuple):
    """A project as a whole.

    Attributes:
        root: the analysed folder or file.
        target: device type to run on.
        facts: what the detector's own ``gather`` returned, one per module, without None.
        natives: C++ and CUDA sources.
        findings: findings of the module detectors so far.
    """

    root: Path
    target: str
    facts: list[Any]
    natives: list[Source]
    findings: list[Finding]


Detector = Callable[[Module], Iterator[Finding]]


class ProjectDetector(NamedTuple):
    """A detector of the project as a whole.

    Attributes:
        gather: returns a small picklable value for a module, or None.
        judge: yields findings from the project's facts.
        probes: whether it queries PyTorch and the target, which takes seconds; `--no-probe` skips it.
    """

    gather: Callable[[Module], Any]
    judge: Callable[[Project], Iterator[Finding]]
    probes: bool = False
