"""``isthmus profile``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus._support.exits import fail

if TYPE_CHECKING:
    from isthmus.profile.hot import Hot
    from isthmus.profile.report import Section

app = typer.Typer(
    help="Analyse Chrome traces written by torch.profiler on any accelerator.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Trace = Annotated[Path, typer.Argument(help="trace.json or trace.json.gz", show_default=False)]
Html = Annotated[Path | None, typer.Option("--html", help="Write the report to this file instead.")]
Top = Annotated[int, typer.Option(min=1, help="Rows of each table.")]


def _read(path: Path) -> Hot:
    """Analyse a trace; warn if events were ignored."""
    from isthmus.profile import hot as analysis
    from isthmus.profile.trace import ProfileError, read

    try:
        trace = read(path)
    except ProfileError as error:
        raise fail(error) from None
    if trace.ignored:
        said = f"{path}: ignored {trace.ignored} events whose time is negative, infinite or not a number"
        print(f"isthmus: warning: {said}", file=sys.stderr)
    return analysis.analyse(trace)


def _show(title: str, sections: list[Section], html: Path | None) -> None:
    from isthmus.profile import report

    if html is None:
        print(report.as_text(title, sections))
        return
    if html.is_dir():
        raise fail(f"{html}: a folder; give the name of a file")
    try:
        report.write_page(html, title, sections)
    except OSError as error:
        raise fail(f"{html}: {error.strerror}; give a file in a folder that exists") from None
    print(html)


@app.command()
def hot(trace: Trace, html: Html = None, top: Top = 20) -> None:
    """Show the hottest operators and kernels, the idle time of the device, and the runtime calls."""
    from isthmus.profile import hot as analysis

    _show(f"Profile of {trace.name}", analysis.sections(_read(trace), top), html)


@app.command()
def diff(
    a: Trace,
    b: Annotated[Path | None, typer.Argument(help="The second trace.", show_default=False)] = None,
    only: Annotated[
        str, typer.Option(help="Only operators that match, such as 'aten::linalg_vector_norm'.")
    ] = "*",
    html: Html = None,
    top: Top = 20,
) -> None:
    """Compare two traces: calls, times, differences, ratios, new and removed operators."""
    from isthmus.profile import diff as comparison

    if b is None:
        raise fail("only one trace given; usage: isthmus profile diff A B")
    before, after = _read(a), _read(b)
    if only != "*" and not comparison.pairs(before.operators, after.operators, only):
        raise fail(f"--only {only}: no operator of either trace matches; `isthmus profile hot` lists them")
    _show(f"A: {a.name}, B: {b.name}", comparison.sections(before, after, only, top), html)
