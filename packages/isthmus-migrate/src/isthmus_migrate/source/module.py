"""One parsed module of a project: its nodes, names and positions, which rules and detectors search."""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TypeVar

from isthmus_migrate.source import constants
from isthmus_migrate.source.edits import Edit, Lines
from isthmus_migrate.source.files import Source
from isthmus_migrate.source.findings import Finding, Severity
from isthmus_migrate.source.names import Index, Names, index
from isthmus_migrate.source.surroundings import ALONE, Surroundings
from isthmus_migrate.source.torchscript import Definition, scripted_functions

Node = TypeVar("Node", bound=ast.AST)
_SINGLE = re.compile(r"(?<!['\w])'[^'\"\n]+'(?!')")
_DOUBLE = re.compile(r'(?<!["\w])"[^\'"\n]+"(?!")')


class Module:
    """A Python source (or the code cells of a notebook), parsed.

    Attributes:
        source: the file.
        text: the Python text; for a notebook, that of its code cells.
        tree: syntax tree of the text.
        name: dotted name, ``"package.module"``.
        around: the rest of the project.
        findings: what the rules found so far.
        claimed: nodes that a rule has dealt with as parts of a larger idiom; later rules skip them.

    Args:
        places: for notebooks, each line's path and line; line n of the text is ``places[n - 1]``.
    """

    def __init__(
        self,
        source: Source,
        tree: ast.Module,
        *,
        text: str | None = None,
        name: str = "",
        around: Surroundings = ALONE,
        places: Sequence[tuple[str, int]] = (),
    ) -> None:
        self.source = source
        self.text = source.text if text is None else text
        self.tree = tree
        self.name = name
        self.around = around
        self.findings: list[Finding] = []
        self.claimed: set[ast.AST] = set()
        self._places = places
        self._mentioned: dict[str | re.Pattern[str], bool] = {}

    @cached_property
    def lines(self) -> list[str]:
        """Lines of the text as counted by Python, without line ends."""
        return self.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")

    @cached_property
    def _offsets(self) -> Lines:
        return Lines(self.text)

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

    def mentions(self, *words: str | re.Pattern[str]) -> bool:
        """Whether any of the words or patterns occurs in the text, for a quick check first."""
        for word in words:
            if word not in self._mentioned:
                found = word in self.text if isinstance(word, str) else word.search(self.text) is not None
                self._mentioned[word] = found
        return any(self._mentioned[word] for word in words)

    def enclosing(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the ancestors of a node, innermost first."""
        parents = self.parents
        parent = parents.get(node)
        while parent is not None:
            yield parent
            parent = parents.get(parent)

    def nearest(self, node: ast.AST, *kinds: type[Node]) -> Node | None:
        """Return the innermost ancestor of a node that is of one of some kinds; None if it has none."""
        return next((each for each in self.enclosing(node) if isinstance(each, kinds)), None)

    @cached_property
    def _scripted(self) -> frozenset[ast.AST]:
        if not self.mentions("jit", "script"):
            return frozenset()
        functions: list[Definition] = [*self.of(ast.FunctionDef), *self.of(ast.AsyncFunctionDef)]
        definitions = [*functions, *self.of(ast.ClassDef)]
        return scripted_functions(self.names, definitions, self.of(ast.Call), self.of(ast.Assign))

    def is_scripted(self, node: ast.AST) -> bool:
        """Whether TorchScript compiles a node, so that it cannot use the device constant."""
        above: ast.AST = node
        for each in self.enclosing(node):
            if each in self._scripted and above in each.body:  # type: ignore[attr-defined]
                return True
            above = each
        return False

    @cached_property
    def _misplaced_nodes(self) -> frozenset[ast.AST]:
        """Nodes in f-strings that cannot be edited: `{x=}` prints it, and Python before 3.12 miscounts some."""
        return frozenset(
            inner
            for text in self.of(ast.JoinedStr)
            for part in text.values
            if isinstance(part, ast.FormattedValue)
            and (not self._parses_to(part.value) or self._shows_source(part.value))
            for inner in ast.walk(part)
        )

    def _parses_to(self, node: ast.expr) -> bool:
        """Whether the text at a node's position is the node's."""
        try:
            return ast.dump(ast.parse(f"({self.code(node)})", mode="eval").body) == ast.dump(node)
        except (SyntaxError, ValueError, IndexError):
            return False

    def _shows_source(self, node: ast.expr) -> bool:
        """Whether a node is that of ``{node=}``, which prints its source."""
        end = self.end(node)
        return self.text[end : end + 20].lstrip(" )").startswith("=")

    def is_placed(self, node: ast.AST) -> bool:
        """Whether a node's position in the text is right."""
        return node not in self._misplaced_nodes

    def is_shared(self, name: str) -> bool:
        """Whether other modules may use a name that this module imports: they name it, or this is a package."""
        names = {f"{self.name}.{name}", f"{self.name}.*"}
        return self.source.path.name == "__init__.py" or not names.isdisjoint(self.around.project.imported)

    @cached_property
    def torch(self) -> str:
        """The name of PyTorch in the module."""
        return constants.torch_name(self.tree) or "torch"

    @cached_property
    def parts_of_torch(self) -> dict[str, tuple[str, int]]:
        """Names of modules of PyTorch in the whole module, and the lines that import them, by dotted names."""
        bound = {each.arg for each in self.of(ast.arg)}
        bound |= {each.id for each in self.of(ast.Name) if not isinstance(each.ctx, ast.Load)}
        found = constants.parts_of_torch(self.tree)
        return {name: (alias, line) for name, (alias, line) in found.items() if alias not in bound}

    @cached_property
    def device(self) -> str:
        """The name of the module's device constant, which it may already define."""
        around = self.around
        return constants.device_name(
            self.tree, self.text, self.torch, around.target, around.project.taken, around.torch
        )

    @cached_property
    def has_own_choice(self) -> bool:
        """Whether the device constant is the project's own, which is CUDA or the CPU before the conversion."""
        return constants.own_choice(self.tree, self.torch) == self.device

    @cached_property
    def _quote(self) -> str:
        if self.around.quote:
            return self.around.quote
        return "'" if len(_SINGLE.findall(self.text)) > len(_DOUBLE.findall(self.text)) else '"'

    def quote(self, node: ast.AST) -> str:
        """Return the quotation mark for a new string: the module's, or not that of an f-string around the node."""
        formatted = [each for each in (node, *self.enclosing(node)) if isinstance(each, ast.JoinedStr)]
        if not formatted or formatted == [node]:
            return self._quote
        return "'" if self.code(formatted[-1]).lstrip("rRfFbBuU").startswith('"') else '"'

    def can_quote(self, node: ast.AST) -> bool:
        """Whether a string can be written at a node: f-strings in one another use up the quotation marks."""
        around = (each for each in self.enclosing(node) if isinstance(each, ast.JoinedStr))
        return sum(getattr(self.parents[each], "format_spec", None) is not each for each in around) < 2

    def start(self, node: ast.AST) -> int:
        """Return the offset of a node's first character in the text."""
        return self._offsets.offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]

    def end(self, node: ast.AST) -> int:
        """Return the offset after a node's last character."""
        return self._offsets.offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def line_start(self, line: int) -> int:
        """Return the offset of the first character of a line, counted from 1."""
        return self._offsets.start(line)

    def code(self, node: ast.AST) -> str:
        """Return a node's source."""
        return self.text[self.start(node) : self.end(node)]

    def finding(
        self,
        code: str,
        severity: Severity,
        node: ast.AST,
        subject: str,
        message: str,
        advice: str,
        edits: Sequence[Edit] = (),
        evidence: str = "",
    ) -> Finding:
        """Make a finding at a node; in a notebook, its path ends in ``#cell<n>`` and lines count within the cell."""
        line: int = getattr(node, "lineno", 0)
        end: int = getattr(node, "end_lineno", None) or line
        path, first = self.place(line)
        column = self._column(node, line)
        place = path, first, first + end - line
        return Finding(code, severity, *place, subject, message, advice, column, tuple(edits), evidence)

    def place(self, line: int) -> tuple[str, int]:
        """Return the path and line of a line of the text, for findings; 0 is the whole file."""
        return self._places[line - 1] if self._places and line else (self.source.name, line)

    def at(self, line: int) -> ast.AST:
        """Return a node at the start of a line, to make a finding there."""
        return ast.Pass(lineno=line, end_lineno=line, col_offset=0)

    def _column(self, node: ast.AST, line: int) -> int:
        """Return the column in characters, from 1; the parser counts bytes of UTF-8."""
        offset: int = getattr(node, "col_offset", 0)
        if line == 0 or self.text.isascii():
            return offset + 1
        return len(self.lines[line - 1].encode()[:offset].decode(errors="ignore")) + 1
