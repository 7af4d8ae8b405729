"""``isthmus profile``: analyse traces of the profiler."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus_common.exits import fail

if TYPE_CHECKING:
    from isthmus_diagnostics.profile.report import Section
    from isthmus_diagnostics.profile.trace import Trace as TraceOfRank

app = typer.Typer(
    help="Analyse Chrome traces written by torch.profiler on any accelerator.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Trace = Annotated[Path, typer.Argument(help="trace.json or trace.json.gz", show_default=False)]
Html = Annotated[Path | None, typer.Option("--html", help="Write the report to this file instead.")]
Traces = Annotated[
    Path, typer.Argument(help="A trace, or a folder with a trace of each rank.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]
Source = Annotated[
    list[Path] | None,
    typer.Option("--source", help="Folder of your code, to name lines in; the current one if not given."),
]
Top = Annotated[int, typer.Option(min=1, help="Rows of each table.")]


def _read(path: Path, whole: bool = False) -> list[TraceOfRank]:
    """Read a trace or a folder of them, or one file with all of its devices; warn if events were ignored."""
    from isthmus_diagnostics.profile.trace import ProfileError, read, read_folder

    try:
        traces = [read(path)] if whole else read_folder(path)
    except ProfileError as error:
        raise fail(error) from None
    for trace in traces:
        if trace.ignored:
            said = f"{trace.path}: ignored {trace.ignored} events whose time is negative, infinite or not a number"
            print(f"isthmus: warning: {said}", file=sys.stderr)
    return traces


def _show(
    title: str, sections: list[Section], html: Path | None, facts: dict[str, str] | None = None
) -> None:
    from isthmus_diagnostics.profile import report

    if html is None:
        print(report.as_text(title, sections))
        return
    if html.is_dir():
        raise fail(f"{html}: a folder; give the name of a file")
    try:
        report.write_page(html, title, sections, facts)
    except OSError as error:
        raise fail(f"{html}: {error.strerror}; give a file in a folder that exists") from None
    print(html)


@app.command()
def hot(trace: Trace, html: Html = None, top: Top = 20) -> None:
    """Show the hottest operators and kernels, the idle time of the device, and the runtime calls."""
    from isthmus_diagnostics.profile import hot as analysis

    _show(
        f"Profile of {trace.name}",
        analysis.sections(analysis.analyse(_read(trace, whole=True)[0]), top),
        html,
    )


@app.command()
def diff(
    a: Traces,
    b: Annotated[Path | None, typer.Argument(help="The second trace or folder.", show_default=False)] = None,
    only: Annotated[
        str, typer.Option(help="Only operators that match, such as 'aten::linalg_vector_norm'.")
    ] = "*",
    html: Html = None,
    top: Top = 20,
) -> None:
    """Compare two traces, or two folders: steps, links, modules, operators and kernels of the mean rank."""
    from isthmus_diagnostics.profile import diff as comparison
    from isthmus_diagnostics.profile import hot as analysis

    if b is None:
        raise fail("only one trace given; usage: isthmus profile diff A B")
    first, second = _read(a), _read(b)
    before, after = analysis.mean_analysis(first), analysis.mean_analysis(second)
    if only != "*" and not comparison.pairs(before.operators, after.operators, only):
        raise fail(f"--only {only}: no operator of either trace matches; `isthmus profile hot` lists them")
    made = comparison.sections(before, after, only, top)
    if only == "*":
        made[1:1] = [
            comparison.step_section(first, second, top),
            comparison.link_section(first, second, top),
            comparison.module_section(first, second, top),
        ]
    _show(f"A: {a.name}, B: {b.name}", made, html)


@app.command()
def advise(path: Traces, json_: Json = False, html: Html = None, source: Source = None) -> None:
    """Name what slows the steps down: the line of your code, the time at stake, and the change."""
    from dataclasses import asdict

    from isthmus_diagnostics.profile import advise as advice
    from isthmus_diagnostics.profile.detectors import Context

    findings = advice.advise(Context.of_traces(_read(path), source or [Path.cwd()]))
    if json_:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
        return
    _show(f"Advice on {path.name}", advice.sections(findings), html)


@app.command()
def report(
    path: Traces,
    json_: Json = False,
    html: Html = None,
    source: Source = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Measure this device's limits first; takes a few seconds.")
    ] = False,
    peak_tflops: Annotated[
        float | None,
        typer.Option(min=1e-6, help="Peak of a device in 10^12 operations per second, for MFU and HFU."),
    ] = None,
    top: Top = 15,
) -> None:
    """Report on a job: advice, steps, ranks, links, operators, critical path, memory."""
    from dataclasses import asdict

    from isthmus_diagnostics.profile import advise as advice
    from isthmus_diagnostics.profile import overview, roofline
    from isthmus_diagnostics.profile.detectors import Context

    contexts = Context.of_traces(_read(path), source or [Path.cwd()])
    try:
        limits = roofline.probe() if probe else None
    except RuntimeError as error:
        raise fail(error) from None
    findings = advice.advise(contexts)
    found = overview.overview(contexts, limits, peak_tflops and 1e12 * peak_tflops)
    if json_:
        advised = [asdict(finding) for finding in findings]
        print(json.dumps({"advice": advised, **asdict(found)}, indent=1))
        return
    made = [*advice.sections(findings), *overview.sections(found, top)]
    _show(f"Report on {path.name}", made, html, overview.facts(found))
