"""Edits of a source at nodes of its syntax tree, with a message for each."""

import ast
from collections.abc import Sequence
from typing import NamedTuple

from isthmus_migrate.rules.scripts.program import NotRecognised
from isthmus_migrate.source.edits import Edit, Lines, without_covered


class Change(NamedTuple):
    """A change of a source.

    Attributes:
        line: line of the source, from 1.
        message: description.
        edits: its edits.
    """

    line: int
    message: str
    edits: tuple[Edit, ...]


class Edits:
    """The edits of one source, collected in any order."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.newline = "\r\n" if "\r\n" in source else "\n"
        self._places = Lines(source)
        self.lines = self._places.lines
        self.edits: list[Change] = []

    def start(self, node: ast.expr | ast.keyword | ast.stmt) -> int:
        """Return the offset of a node's first character."""
        return self._places.offset(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.keyword | ast.stmt) -> int:
        """Return the offset after a node's last character."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._places.offset(node.end_lineno, node.end_col_offset)

    def text(self, node: ast.expr | ast.stmt) -> str:
        """A node's source."""
        return self.source[self.start(node) : self.end(node)]

    def replace(self, node: ast.expr | ast.stmt, text: str, message: str = "") -> None:
        """Replace a node by text."""
        self.replace_span(self.start(node), self.end(node), text, message, node.lineno)

    def insert(self, offset: int, text: str, message: str, line: int) -> None:
        """Insert text at an offset."""
        self.replace_span(offset, offset, text, message, line)

    def surround(self, node: ast.expr, before: str, after: str, message: str = "") -> None:
        """Insert text before and after an expression."""
        self.insert(self.start(node), before, message, node.lineno)
        self.insert(self.end(node), after, "", node.lineno)

    def unwrap(self, call: ast.Call, argument: ast.expr, message: str) -> None:
        """Replace a call by one of its arguments."""
        self.replace_span(self.start(call), self.start(argument), "", message, call.lineno)
        self.replace_span(self.end(argument), self.end(call), "", "", call.lineno)

    def delete_keyword(self, call: ast.Call, keyword: ast.keyword) -> None:
        """Delete a keyword argument of a call, with the comma before it."""
        given: list[ast.expr | ast.keyword] = sorted([*call.args, *call.keywords], key=self.start)
        position = given.index(keyword)
        start = self.end(given[position - 1]) if position else self.start(keyword)
        end = self.end(keyword) if position or len(given) == 1 else self.start(given[1])
        self.replace_span(start, end, "", "", keyword.lineno)

    def insert_lines_before(self, statement: ast.stmt, lines: str, message: str) -> None:
        """Insert lines before a statement, with its indentation."""
        first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", []))])
        self.insert(self._places.start(first), self._indented(statement, lines), message, statement.lineno)

    def insert_lines_after(self, statement: ast.stmt, lines: str, message: str) -> None:
        """Insert lines after a statement, with its indentation."""
        assert statement.end_lineno is not None
        offset = self._places.start(statement.end_lineno + 1)
        text = self._indented(statement, lines)
        if self.source[:offset][-1:] not in ("\n", "\r"):
            text = self.newline + text
        self.insert(offset, text, message, statement.lineno)

    def delete_lines(self, statement: ast.stmt, message: str) -> None:
        """Delete the lines of a statement."""
        assert statement.end_lineno is not None
        start, end = self._places.start(statement.lineno), self._places.start(statement.end_lineno + 1)
        self.replace_span(start, end, "", message, statement.lineno)

    def guard(self, statement: ast.stmt, condition: str, message: str) -> None:
        """Put a statement, alone on its lines, under an ``if``."""
        indent = self._indent(statement)
        if self._places.start(statement.lineno) + len(indent) != self.start(statement):
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
                self.insert(self._places.start(number), "    ", "", number)

    def changes(self) -> list[Change]:
        """Return the changes in text order, without edits inside text that another edit deletes.

        An edit without a message is a part of the change before it.
        """
        changes = [
            each._replace(edits=(self._place_change(each, number),)) for number, each in enumerate(self.edits)
        ]
        by_edit = {each.edits[0]: each for each in changes}
        made: list[Change] = []
        for edit in without_covered(by_edit):
            change = by_edit[edit]
            if change.message or not made:
                made.append(change)
            else:
                made[-1] = made[-1]._replace(edits=(*made[-1].edits, edit))
        return made

    def _place_change(self, change: Change, number: int) -> Edit:
        """Return the edit of a change; insertions at one offset keep the order in which they were made."""
        (edit,) = change.edits
        return edit._replace(span=number - len(self.edits)) if edit.start == edit.end else edit

    def replace_span(self, start: int, end: int, text: str, message: str, line: int) -> None:
        """Replace the text between two offsets."""
        self.edits.append(Change(line, message, (Edit(start, end, text),)))

    def _indent(self, statement: ast.stmt) -> str:
        text = self.lines[statement.lineno - 1]
        return text[: len(text) - len(text.lstrip())]

    def _indented(self, statement: ast.stmt, lines: str) -> str:
        indent = self._indent(statement)
        return "".join(f"{indent if line else ''}{line}{self.newline}" for line in lines.split("\n"))
