"""``isthmus conform``: golden data, conformance runs, reports and timing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from isthmus_common.exits import fail, sigterm_as_interrupt

app = typer.Typer(
    help="Test whether a chip implements the operator interface. Only `generate` needs PyTorch.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Driver = Annotated[
    str,
    typer.Option(
        help="Driver: a name, or the path of its driver.toml or library; by default the one that PyTorch would use."
    ),
]
Library = Annotated[
    list[Path] | None,
    typer.Option("--library", help="Operator library (.so or .py) in place of the driver's own; repeatable."),
]
Patterns = Annotated[
    list[str] | None,
    typer.Option(
        "--operators", help="Only matching operators, such as 'aten::*softmax*' or 'add,mul'; repeatable."
    ),
]
Golden = Annotated[
    Path | None,
    typer.Option(help="Folder of golden data; by default the cache, in which missing data is made."),
]
Mutation = Annotated[Path | None, typer.Option(help="mutation.json with the score to show in the report.")]
Thorough = Annotated[
    bool,
    typer.Option("--thorough", help="Cases for every pair of ranks, sizes, layouts and so on; takes hours."),
]


@contextmanager
def _one_line() -> Iterator[None]:
    """Print usage errors as one line and exit with 2."""
    from isthmus.conformance.golden import GoldenError
    from isthmus.conformance.known_failures import KnownFailureError
    from isthmus.conformance.processes import WorkerError
    from isthmus.conformance.report import ReportError
    from isthmus.conformance.selection import UsageError
    from isthmus.drivers.loader import LoaderError

    try:
        yield
    except (GoldenError, KnownFailureError, WorkerError, UsageError, LoaderError, ReportError) as error:
        raise fail(error, 2) from None


@app.command()
def generate(
    output: Annotated[Path | None, typer.Option(help="Folder to write; by default the cache.")] = None,
    operators: Patterns = None,
    seed: Annotated[int, typer.Option(help="Seed of the samples.")] = 0,
    thorough: Thorough = False,
) -> None:
    """Write golden data: samples and float64 references for every operator, by PyTorch on CPU.

    Data of other operators that the folder holds stays, if of the same opset, seed and version of PyTorch.
    """
    from concurrent.futures.process import BrokenProcessPool

    from isthmus.conformance import cache
    from isthmus.conformance.generate import generate as write
    from isthmus.doctor import has_torch
    from isthmus.opset import UnknownOperator
    from isthmus_common.progress import Bar
    from isthmus_common.text import NO_TORCH

    if not has_torch():
        raise fail(f"conform generate: {NO_TORCH}", 2)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # PyTorch warns about some of the samples
    folder = output or cache.folder(thorough)
    if folder.is_dir() and any(folder.iterdir()) and not cache.holds_golden(folder):
        raise fail(f"conform generate: {folder} holds other files; name a new folder", 2)
    try:
        with Bar("operators") as bar:
            done = write(folder, ",".join(operators or ["*"]), seed, bar.at, thorough)
    except BrokenProcessPool:
        raise fail(
            "conform generate: a process was killed, probably for memory; choose fewer --operators", 2
        ) from None
    except (ImportError, OSError, ValueError, UnknownOperator) as error:
        raise fail(f"conform generate: {' '.join(str(error).split())}", 2) from None
    rejected = {name: count for name, count in done.rejected.items() if count}
    most = ", ".join(
        f"{name} {rejected[name]}" for name in sorted(rejected, key=lambda name: rejected[name])[:-4:-1]
    )
    note = f"; PyTorch rejected {sum(rejected.values())} derived calls of {len(rejected)} operators, most of {most}"
    print(f"{done.cases} cases in {folder}{note if rejected else ''}")


@app.command()
def run(
    driver: Driver = "",
    golden: Golden = None,
    operators: Patterns = None,
    library: Library = None,
    tier: Annotated[
        str, typer.Option(help="Only operators of a tier, all of whose cases must run: core, llama, ...")
    ] = "",
    case: Annotated[
        list[str] | None,
        typer.Option(help="Only this case, as a failure prints it: operator/dtype/case; repeatable."),
    ] = None,
    through: Annotated[
        str,
        typer.Option(
            help="'kernels' of the libraries, or 'pytorch': PyTorch's operators on chip tensors by any route. By "
            "default kernels if the driver has any, else pytorch."
        ),
    ] = "",
    output: Annotated[
        Path | None, typer.Option(help="Folder for report.json, junit.xml, report.html.")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(help="Folder for the inputs and results of failed cases (safetensors, JSON)."),
    ] = None,
    mutation: Mutation = None,
    jobs: Annotated[int, typer.Option(help="Worker processes; 0 means one per processor.", min=0)] = 0,
    thorough: Thorough = False,
) -> None:
    """Run the suite.

    Exits with 0 (passed), 1 (failures or stale known failures), 2 (invalid input), 3 (demanded cases were not run) or
    130 (interrupted; the report has the results until then).
    """
    from isthmus.conformance import cache, report
    from isthmus.conformance.progress import RunProgress, print_summary
    from isthmus.conformance.run import Options, Runner
    from isthmus.conformance.selection import split
    from isthmus_common.progress import say

    if thorough and golden:
        raise fail("--thorough: the data of --golden decides; make it by `conform generate --thorough`", 2)
    if through not in ("", "kernels", "pytorch"):
        raise fail(f"--through {through}: expected kernels or pytorch", 2)
    if case and (operators or tier):
        raise fail("--case: names its operator; leave out --operators and --tier", 2)
    given = (("--driver", driver), ("--through", through), ("--golden", golden))
    again = [word for name, value in given if value for word in (name, str(value))]
    again += [word for path in library or () for word in ("--library", str(path))]
    options = Options(
        driver,
        tuple(str(path) for path in library or ()),
        split(operators or ()),
        tier,
        tuple(case or ()),
        through,
        jobs or os.cpu_count() or 1,
        str(keep or ""),
        ("isthmus", "conform", "run", *again, *(("--thorough",) if thorough else ())),
    )
    with _one_line():
        if mutation:
            report.read_score(mutation)  # fail before the long run, and so does the next line
        if output:
            report.make(output, "--output")
        if keep:
            report.make(keep, "--keep")
        with sigterm_as_interrupt(), RunProgress() as progress:
            finished = Runner(options, cache.golden(golden, say, thorough), progress).run()
        if output:
            report.write(output, finished.to_json(), mutation)
    print_summary(finished)
    if output:
        print(f"report: {output / 'report.html'}")
    if finished.interrupted:
        raise typer.Exit(130)
    if finished.failed:
        raise typer.Exit(1)
    if finished.incomplete:
        raise typer.Exit(3)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder with the report.json of a run.")],
    mutation: Mutation = None,
) -> None:
    """Write junit.xml and report.html again from the report.json of a run."""
    from isthmus.conformance import report as reports

    with _one_line():
        reports.write(folder, reports.read(folder), mutation)
    print(f"report: {folder / 'report.html'}")


@app.command("list")
def list_operators(
    driver: Driver = "",
    operators: Patterns = None,
    library: Library = None,
    tier: Annotated[str, typer.Option(help="Only this tier.")] = "",
) -> None:
    """List the operators of the opset, with dtypes and flags that the driver's libraries claim."""
    from isthmus.conformance.claims import claims, tiers
    from isthmus.conformance.selection import split

    with _one_line():
        if tier and tier not in tiers():
            raise fail(f"--tier {tier}: unknown tier; expected one of {', '.join(tiers())}", 2)
        for line in claims(driver, [str(path) for path in library or ()], tier, split(operators or ())):
            print(line)


@app.command()
def bench(
    driver: Driver = "",
    golden: Golden = None,
    operators: Patterns = None,
    library: Library = None,
    output: Annotated[Path | None, typer.Option(help="Folder for bench.json.")] = None,
    rounds: Annotated[int, typer.Option(help="Batches of each operator.", min=1)] = 5,
) -> None:
    """Time each operator of the libraries, relative to the chip's byte and FLOP limits."""
    from isthmus.conformance import bench as timing
    from isthmus.conformance import cache
    from isthmus.conformance.libraries_target import LibrariesTarget
    from isthmus.conformance.run import candidate
    from isthmus.conformance.selection import named_operators, select, split
    from isthmus_common.progress import Bar, say
    from isthmus_common.tables import print_table

    with _one_line():
        samples, patterns = cache.golden(golden, say), split(operators or ())
        reader = samples(named_operators(patterns)) if callable(samples) else samples
        names = select(reader, patterns)
        chosen = candidate(driver)
        target = LibrariesTarget(chosen, [str(path) for path in library or ()])
        timer = timing.Bench(target, dict(chosen.peak_flops))
        with Bar("operators") as bar:
            result = timer.run(reader, names, rounds, bar.at)
    print_table(*timing.table(result))
    for case, reason in result["left_out"].items():
        print(f"left out: {case}: {reason}")
    if output:
        print(f"report: {timing.write(output, result)}")
