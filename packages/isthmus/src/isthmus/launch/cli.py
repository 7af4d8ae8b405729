"""The command ``isthmus run``."""

from typing import Annotated

import typer

from isthmus.launch.ranks import Ranks
from isthmus.launch.run import Dump, Job, JobError, separate_program
from isthmus_common.exits import fail

EPILOG = (
    "Examples: isthmus run train.py --lr 1e-4 | isthmus run --nproc 2 train.py | isthmus run -m pkg.train | "
    "isthmus run --nnodes 2 --nproc 8 --rdzv-endpoint node0:29500 train.py (on both nodes) | "
    "isthmus run torchrun --nproc-per-node 2 train.py | isthmus run accelerate launch train.py"
)
METAVAR = (
    "[--device D] [--driver D] [--patch L] [--provide M] [--megatron] [--plan P] [--swap] [--dump K] [--quiet] "
    "[--explain]"
)
# --nproc runs scripts and modules only.
PROGRAM = (
    "{[--nproc N [--nnodes M] ...] {script.py | -m module} | -c command | torchrun ... | accelerate launch ...} "
    "[arguments]"
)


prepare = separate_program  # before the arguments are parsed


def add_to(app: typer.Typer) -> None:
    """Add the command to `isthmus`."""
    app.command(options_metavar=METAVAR, epilog=EPILOG)(run)


def run(
    program: Annotated[
        list[str] | None,
        typer.Argument(metavar=PROGRAM, help="The program and its own arguments.", show_default=False),
    ] = None,
    device: Annotated[
        str, typer.Option(help="Device that 'cuda' stands for, such as 1, chip:1, or cpu.")
    ] = "",
    driver: Annotated[str, typer.Option(help="Driver to open, by name or path.")] = "",
    patch: Annotated[
        str,
        typer.Option(
            help="Libraries to put isthmus.ops' fused operators under, by comma: transformers, torch."
        ),
    ] = "",
    provide: Annotated[
        str, typer.Option(help="Modules to provide if the real ones are absent, by comma: flash_attn, apex.")
    ] = "",
    megatron: Annotated[
        bool, typer.Option("--megatron", help="Adapt Megatron, as `import isthmus.megatron` does.")
    ] = False,
    plan: Annotated[str, typer.Option(help="Plan of `isthmus plan` to apply to the model.")] = "",
    swap: Annotated[
        bool,
        typer.Option(
            "--swap", help="Keep activations of layers on the host as far as the device has no room for them."
        ),
    ] = False,
    dump: Annotated[
        str, typer.Option(help="Record every call for `isthmus accuracy`: statistics, hashes or tensors.")
    ] = "",
    dump_dir: Annotated[str, typer.Option(help="Folder of the dump. Default: isthmus-dump.")] = "",
    dump_level: Annotated[str, typer.Option(help="Calls to record: module, operator, both, all.")] = "",
    dump_steps: Annotated[str, typer.Option(metavar="0,1,5-7", help="Steps to record. Default: all.")] = "",
    dump_ranks: Annotated[str, typer.Option(metavar="0,1,5-7", help="Ranks that record. Default: all.")] = "",
    dump_scope: Annotated[
        str, typer.Option(help="Modules or operators to record, such as '*.layers.0.*' or 'aten::mm'.")
    ] = "",
    monitor: Annotated[
        str,
        typer.Option(
            help="Folder for statistics of every 100th step, alerts, and monitor.json, which may be edited."
        ),
    ] = "",
    health: Annotated[
        bool,
        typer.Option(
            "--health",
            help="Report hangs, slow ranks, loss spikes and wrong matmuls; save state before death.",
        ),
    ] = False,
    health_dir: Annotated[
        str, typer.Option(help="Folder of the reports of --health. Default: isthmus-health.")
    ] = "",
    quiet: Annotated[bool, typer.Option("--quiet", help="Omit the start line and the end line.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print every patch and every rewriting rule instead of running.")
    ] = False,
    nproc: Annotated[
        str,
        typer.Option(
            "--nproc",
            "--nproc-per-node",
            metavar="N|auto",
            help="Run as N ranks on this node, by torchrun's agent; auto: one for each device.",
        ),
    ] = "",
    nnodes: Annotated[
        str, typer.Option(metavar="M|MIN:MAX", help="Nodes; give the same command on each of them.")
    ] = "1",
    rdzv_endpoint: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Rendezvous, which numbers the nodes; HOST is one of them."),
    ] = "",
    rdzv_id: Annotated[str, typer.Option(help="Name of the job, if several use that rendezvous.")] = "",
    node_rank: Annotated[
        int | None, typer.Option(help="Instead of --rdzv-endpoint: number of this node, from 0.")
    ] = None,
    master_addr: Annotated[str, typer.Option(help="With --node-rank: address of node 0.")] = "",
    master_port: Annotated[
        int | None, typer.Option(help="With --node-rank: a free port of node 0; 29500 if not given.")
    ] = None,
    max_restarts: Annotated[
        int, typer.Option(help="How often all ranks are restarted after one has failed.")
    ] = 0,
    log_dir: Annotated[
        str,
        typer.Option(
            help="Folder in which each job creates one, with two files for each rank and attempt: .out and .err. "
            "Default: a temporary one, kept if the job fails."
        ),
    ] = "",
    local_ranks_filter: Annotated[
        str,
        typer.Option(
            metavar="0,1,...|all",
            help="Ranks of this node whose output the terminal shows, each line with its rank. Default: rank 0, and "
            "the iterations of any rank.",
        ),
    ] = "",
    progress: Annotated[
        bool,
        typer.Option(
            "--progress",
            help="If the output is not a terminal: print a progress line in place of each iteration line. (On a "
            "terminal it stands below the output.)",
        ),
    ] = False,
    peak_tflops: Annotated[
        float,
        typer.Option(
            help="Peak of one device, in 10^12 operations per second, for the MFU.", show_default=False
        ),
    ] = 0.0,
) -> None:
    """Run a program written for CUDA on the accelerator of this machine, without changing it.

    With --nproc it runs as several ranks, with the output of each in a file. If the job fails, the rank that failed
    first is named, with its traceback, and its exit status is that of the job.
    """
    ranks = Ranks(
        nproc, nnodes, node_rank, master_addr, master_port, rdzv_endpoint, rdzv_id,
        max_restarts, log_dir, local_ranks_filter, progress, peak_tflops,
    )  # fmt: skip
    try:
        if not nproc and ranks != Ranks(""):
            raise JobError("the options of ranks need --nproc N, the number of ranks on each node")
        job = Job(
            program or [],
            device=device,
            driver=driver,
            ranks=ranks if nproc else None,
            quiet=quiet,
            patch=patch,
            provide=provide,
            megatron=megatron,
            plan=plan,
            swap=swap,
            monitor=monitor,
            health=health,
            health_dir=health_dir,
            dump=Dump(dump, dump_dir, dump_level, dump_steps, dump_ranks, dump_scope),
        )
        if explain:
            from isthmus.shim.explain import explanation

            print(explanation())
        else:
            job.start()
    except JobError as error:
        raise fail(error, 2) from None
    except RuntimeError as error:
        raise fail(error) from None
