"""Tables on the console: styled on a terminal, tab-separated when piped."""

import sys
from collections.abc import Callable, Sequence

from isthmus_common.console import Console, Table, Text

Cells = Sequence[str]


def print_table(
    head: Cells,
    rows: Sequence[Cells],
    *,
    style: Callable[[Cells], str] = lambda row: "",
    error: bool = False,
    piped_head: bool = True,
) -> None:
    """Print a table.

    Args:
        head: titles of the columns.
        rows: cells; a row has as many as the head.
        style: Rich style of a row on a terminal.
        error: print to standard error.
        piped_head: print the head when the stream is not a terminal.
    """
    stream = sys.stderr if error else sys.stdout
    if stream.isatty():
        Console(stderr=error).print(plain_table(head, rows, style))
        return
    for row in [head, *rows] if piped_head else rows:
        print("\t".join(row), file=stream)


def plain_table(head: Cells, rows: Sequence[Cells], style: Callable[[Cells], str] = lambda row: "") -> Table:
    """Return a Rich table without lines, whose cells are text and never markup."""
    table = Table(*head, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*map(Text, row), style=style(row))
    return table


def align_columns(rows: Sequence[Cells], *, figures: bool = False) -> str:
    """Return rows as text in columns, two spaces apart.

    Args:
        rows: cells, the head first; all rows have as many.
        figures: align all columns but the first to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if figures and column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
