"""Positions of syntax tree nodes in a source, in characters."""

import ast
import io
import re
import tokenize

from isthmus_migrate.trace.places import Span

Located = ast.expr | ast.pattern


class Source:
    """A Python source.

    Args:
        data: its bytes, with the encoding declaration or byte order mark that Python reads.
    """

    def __init__(self, data: bytes) -> None:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        self._lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", data.decode(encoding))

    def span(self, node: Located) -> Span:
        """Return the position of a node."""
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return Span(
            node.lineno,
            self._column(node.lineno, node.col_offset),
            end_line,
            self._column(end_line, end_column),
        )

    def text(self, span: Span) -> str:
        """Return the source of a position."""
        lines = self._lines[span.line - 1 : span.end_line]
        lines[-1] = lines[-1][: span.end_column - 1]
        lines[0] = lines[0][span.column - 1 :]
        return "".join(lines)

    def holds(self, node: Located) -> bool:
        """Return whether the node is at its position: before Python 3.12, those in an f-string may be wrong."""
        try:
            found = ast.parse(f"({self.text(self.span(node))})", mode="eval").body
        except (SyntaxError, ValueError, IndexError):
            return False
        if isinstance(node, ast.Constant):
            return isinstance(found, ast.Constant) and found.value == node.value
        return isinstance(found, type(node)) or _is_of_shim(node)

    def _column(self, line: int, column: int) -> int:
        return len(self._lines[line - 1].encode()[:column].decode(errors="replace")) + 1


def _is_of_shim(node: Located) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id.startswith("__isthmus_")
    )
