"""Edits of a source text at nodes of its syntax tree."""

import ast
import re
from collections.abc import Sequence
from typing import NamedTuple

from isthmus.migrate.convert.program import NotRecognised


class Edit(NamedTuple):
    """A replacement.

    Attributes:
        start: offset in the text, in characters.
        end: offset after the last replaced character; equal to ``start`` for an insertion.
        text: the new text.
        message: description for the log; "" for a part of another edit.
        line: line of the source, from 1.
    """

    start: int
    end: int
    text: str
    message: str
    line: int


class Edits:
    """The edits of one source, collected in any order."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.newline = "\r\n" if "\r\n" in source else "\n"
        self.lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", source)
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line))
        self.edits: list[Edit] = []

    def offset(self, line: int, column: int) -> int:
        """Return the offset of an ast location: line from 1, column in bytes of UTF-8."""
        text = self.lines[line - 1]
        return self._starts[line - 1] + len(text.encode()[:column].decode())

    def start(self, node: ast.expr | ast.stmt) -> int:
        """Return the offset of a node's first character."""
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt) -> int:
        """Return the offset after a node's last character."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.offset(node.end_lineno, node.end_col_offset)

    def text(self, node: ast.expr | ast.stmt) -> str:
        """A node's source."""
        return self.source[self.start(node) : self.end(node)]

    def replace(self, node: ast.expr | ast.stmt, text: str, message: str = "") -> None:
        """Replace a node by text."""
        self.edits.append(Edit(self.start(node), self.end(node), text, message, node.lineno))

    def insert(self, offset: int, text: str, message: str, line: int) -> None:
        """Insert text at an offset."""
        self.edits.append(Edit(offset, offset, text, message, line))

    def surround(self, node: ast.expr, before: str, after: str, message: str = "") -> None:
        """Insert text before and after an expression."""
        self.insert(self.start(node), before, message, node.lineno)
        self.insert(self.end(node), after, "", node.lineno)

    def unwrap(self, call: ast.Call, argument: ast.expr, message: str) -> None:
        """Replace a call by one of its arguments."""
        self.edits.append(Edit(self.start(call), self.start(argument), "", message, call.lineno))
        self.edits.append(Edit(self.end(argument), self.end(call), "", "", call.lineno))

    def insert_lines_before(self, statement: ast.stmt, lines: str, message: str) -> None:
        """Insert lines before a statement, with its indentation."""
        first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", []))])
        self.insert(self._starts[first - 1], self._indented(statement, lines), message, statement.lineno)

    def insert_lines_after(self, statement: ast.stmt, lines: str, message: str) -> None:
        """Insert lines after a statement, with its indentation."""
        assert statement.end_lineno is not None
        offset = self._starts[statement.end_lineno]
        text = self._indented(statement, lines)
        if self.source[:offset][-1:] not in ("\n", "\r"):
            text = self.newline + text
        self.insert(offset, text, message, statement.lineno)

    def delete_lines(self, statement: ast.stmt, message: str) -> None:
        """Delete the lines of a statement."""
        assert statement.end_lineno is not None
        start, end = self._starts[statement.lineno - 1], self._starts[statement.end_lineno]
        self.edits.append(Edit(start, end, "", message, statement.lineno))

    def guard(self, statement: ast.stmt, condition: str, message: str) -> None:
        """Put a statement, alone on its lines, under an ``if``."""
        indent = self._indent(statement)
        if self._starts[statement.lineno - 1] + len(indent) != self.start(statement):
            condition, inner = f"{condition} ", ""
        else:
            inner = f"{self.newline}{indent}    "
        self.insert(self.start(statement), condition + inner, message, statement.lineno)

    def nest(self, statements: Sequence[ast.stmt], line: str, message: str) -> None:
        """Put adjacent statements under a line such as ``with x:``.

        Raises:
            NotRecognised: they contain a multi-line string.
        """
        first, last = statements[0], statements[-1]
        assert last.end_lineno is not None
        for node in (node for each in statements for node in ast.walk(each)):
            if isinstance(node, ast.Constant | ast.JoinedStr) and node.lineno != node.end_lineno:
                raise NotRecognised(node.lineno, "a multi-line string would change its indentation")
        self.insert_lines_before(first, line, message)
        for number in range(first.lineno, last.end_lineno + 1):
            if self.lines[number - 1].strip():
                self.insert(self._starts[number - 1], "    ", "", number)

    def made(self) -> list[Edit]:
        """Return the edits in text order, without those inside text that another edit deletes."""
        made: list[Edit] = []
        done = 0
        for edit in sorted(self.edits, key=lambda edit: (edit.start, edit.end)):
            if edit.start >= done:
                made.append(edit)
                done = edit.end
        return made

    def apply(self) -> str:
        """Return the text with all edits applied."""
        parts: list[str] = []
        done = 0
        for edit in self.made():
            parts += [self.source[done : edit.start], edit.text]
            done = edit.end
        return "".join([*parts, self.source[done:]])

    def _indent(self, statement: ast.stmt) -> str:
        text = self.lines[statement.lineno - 1]
        return text[: len(text) - len(text.lstrip())]

    def _indented(self, statement: ast.stmt, lines: str) -> str:
        indent = self._indent(statement)
        return "".join(f"{indent if line else ''}{line}{self.newline}" for line in lines.split("\n"))
