"""``isthmus plan``: fit a training job in memory."""

from pathlib import Path
from typing import Annotated

import typer

from isthmus_common.exits import fail

app = typer.Typer(
    help="Fit a training job in memory: recompute, offload, parallelism.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _plan() -> None:
    pass


@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def recompute(
    program: Annotated[
        list[str], typer.Argument(metavar="script.py | -m module [arguments]", show_default=False)
    ],
    memory: Annotated[
        str,
        typer.Option(
            help="Memory of a device to fit in, such as 6GiB; also after the program. Default: all."
        ),
    ] = "",
    output: Annotated[Path, typer.Option("--output", "-o", help="Plan file to write.")] = Path("plan.json"),
    offload: Annotated[
        bool, typer.Option("--offload", help="Consider to keep activations of layers on the host, too.")
    ] = False,
    nproc: Annotated[str, typer.Option(help="Run as N ranks, as `isthmus run --nproc` does.")] = "",
    megatron: Annotated[
        bool, typer.Option("--megatron", help="Adapt Megatron, as isthmus run does.")
    ] = False,
    patch: Annotated[str, typer.Option(help="As in isthmus run: transformers, torch.")] = "",
) -> None:
    """Choose what to recompute in the backward, so that training is as fast as it can be within a memory.

    Runs the program, each time for a few steps: to measure the modules of its layers, and to verify the plan.
    """
    from isthmus.launch.ranks import Ranks
    from isthmus.launch.run import Job, JobError
    from isthmus_common.units import parse_size
    from isthmus_diagnostics.plan.files import PlanError
    from isthmus_diagnostics.plan.recompute import plan

    memory = memory or _take_option(program, "--memory")
    output = Path(_take_option(program, "-o") or output)
    size = parse_size(memory) if memory else None
    if memory and not size:
        raise fail(f"--memory {memory}: not a size; give bytes or a number with MiB or GiB, such as 6GiB", 2)
    ranks = Ranks(nproc) if nproc else None
    job = Job(program, {"quiet": "1", "patch": patch, "megatron": "1" if megatron else ""}, ranks)
    try:
        print(plan(job, size, output, offload=offload))
    except (PlanError, JobError) as error:
        raise fail(error) from None


@app.command()
def parallel(
    model: Annotated[
        Path, typer.Argument(help="config.json of a Hugging Face model, or a file with Megatron's options.")
    ],
    cluster: Annotated[Path, typer.Option(help="TOML file with cards, memory and links.")] = Path(
        "cluster.toml"
    ),
    measure: Annotated[
        int, typer.Option(help="Measure so many cards of this machine first; write them to --cluster.")
    ] = 0,
    cards: Annotated[int, typer.Option(help="Cards, instead of those of the cluster.")] = 0,
    memory: Annotated[
        str, typer.Option(help="Memory of a card, such as 64GiB, instead of the cluster's.")
    ] = "",
    global_batch: Annotated[int, typer.Option(help="Samples of a step.")] = 256,
    seq_length: Annotated[
        int, typer.Option(help="Tokens of a sample. Default: Megatron's option, or 4096.")
    ] = 0,
    dtype: Annotated[
        str, typer.Option(help="bfloat16, float16 or float32. Default: Megatron's, or bfloat16.")
    ] = "",
    top: Annotated[int, typer.Option(help="Layouts to print.")] = 10,
    explain: Annotated[int, typer.Option(help="Print the terms of the Nth layout.")] = 0,
    emit: Annotated[
        str, typer.Option(help="Print the options of the layout for megatron, torchtitan or deepspeed.")
    ] = "",
    infeasible: Annotated[
        bool, typer.Option("--infeasible", help="Print the layouts that cannot run.")
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all layouts to a file.")] = None,
) -> None:
    """Rank every layout of a model on a cluster by predicted step time, with its memory.

    --emit prints the options of the fastest layout, or of that of --explain.
    """
    from isthmus_diagnostics.plan.files import PlanError
    from isthmus_diagnostics.plan.parallel import session

    request = session.Request(
        model,
        cluster,
        measure,
        cards,
        memory,
        global_batch,
        seq_length,
        dtype,
        top,
        explain,
        emit,
        infeasible,
        json_file,
    )
    try:
        print(session.run(request))
    except PlanError as error:
        raise fail(error) from None


def _take_option(program: list[str], option: str) -> str:
    """Remove an option with its value from the arguments of the program; return the value, or "" without one."""
    if option not in program[:-1]:
        return ""
    index = program.index(option)
    value = program[index + 1]
    del program[index : index + 2]
    return value
