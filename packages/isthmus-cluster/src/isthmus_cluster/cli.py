"""``isthmus cluster``: inventory, rank tables and launch scripts of a cluster."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from isthmus_cluster import arguments
from isthmus_cluster.errors import ClusterError
from isthmus_cluster.isolate import cli as isolation
from isthmus_cluster.lab.cli import app as lab
from isthmus_cluster.monitor import cli as monitoring
from isthmus_cluster.preflight import cli as preparation
from isthmus_cluster.ranktable.cli import app as ranktable
from isthmus_cluster.watch.cli import watch
from isthmus_common.exits import exit_on
from isthmus_common.text import count

app = typer.Typer(
    help="Describe a cluster once, and run and check jobs on it.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(ranktable, name="ranktable")
app.add_typer(lab, name="lab")
app.command(epilog=preparation.EPILOG)(preparation.preflight)
app.command(epilog=isolation.EPILOG)(isolation.isolate)
app.command(epilog=monitoring.EPILOG)(monitoring.monitor)
app.command()(watch)


@app.command()
def init(
    source: Annotated[
        str,
        typer.Argument(
            help="local: this machine; slurm: the nodes of this job; else the path of a hostfile."
        ),
    ] = "local",
    output: Annotated[Path, typer.Option("--output", "-o", help="Inventory to write.")] = Path(
        "cluster.yaml"
    ),
    cards: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Cards of a host, where the source does not say.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write the inventory of a cluster."""
    from isthmus_cluster import inventory, sources

    with exit_on(ClusterError):
        if output.exists() and not force:
            raise ClusterError(f"{output}: exists; give another --output, or --force to replace it")
        found = sources.from_argument(source, cards)
        inventory.write(found, output)
        print(f"{output}: {count(len(found.hosts), 'host')}, {count(found.world_size, 'card')}")


@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def render(
    context: typer.Context,
    kind: Annotated[
        str,
        typer.Argument(
            help="hostfile, mpich, torchrun, megatron, msrun, mindformers, slurm, systemd, "
            "ranktable-1.0, ranktable-1.2 or ranktable-2.0."
        ),
    ],
    program: Annotated[
        list[str] | None, typer.Argument(metavar="train.py [arguments]", show_default=False)
    ] = None,
    inventory: arguments.Inventory = arguments.INVENTORY,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write to.")] = Path("launch"),
    port: Annotated[
        int | None, typer.Option(help="Port of rank 0. Default: 29500, or 8118 for msrun.")
    ] = None,
    interface: Annotated[
        str, typer.Option(help="Network interface for collectives (NCCL_SOCKET_IFNAME, HCCL_SOCKET_IFNAME).")
    ] = "",
    directory: Annotated[str, typer.Option(help="Working directory on every host.")] = "",
    rank_table: Annotated[str, typer.Option(help="Path of RANK_TABLE_FILE on every host.")] = "",
    env: arguments.Variables = None,
) -> None:
    """Write launch files of a job for all hosts: options, then the kind, then the program."""
    from isthmus_cluster import inventory as inventories
    from isthmus_cluster.render import kinds
    from isthmus_cluster.render.job import Job

    with exit_on(ClusterError):
        arguments.check_program([kind], context)
        arguments.check_program(program or [], context)
        job = Job(
            inventories.read(inventory), program or [], port, interface, directory, rank_table, env or []
        )
        paths, removed = kinds.render(kind, job, output)
        for path in removed:
            print(f"isthmus: {path}: removed, from an earlier render", file=sys.stderr)
        for path in paths:
            print(path)


@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def run(
    context: typer.Context,
    program: Annotated[
        list[str], typer.Argument(metavar="script.py | -m module [arguments]", show_default=False)
    ],
    inventory: arguments.Inventory = arguments.INVENTORY,
    port: Annotated[int, typer.Option(help="Port of rank 0.")] = 29500,
    interface: Annotated[
        str, typer.Option(help="Network interface for collectives (NCCL, HCCL, GLOO_SOCKET_IFNAME).")
    ] = "",
    directory: Annotated[str, typer.Option(help="Working directory on every host. Default: this one.")] = "",
    env: arguments.Variables = None,
    python: arguments.Python = "",
    log_dir: Annotated[str, typer.Option(help="Folder for the output of the ranks, on every host.")] = "",
    shown: Annotated[
        str, typer.Option("--local-ranks-filter", help="Local ranks whose output is shown: 0,1 or all.")
    ] = "",
    progress: Annotated[
        bool, typer.Option("--progress", help="Print the progress line even if the output is not a terminal.")
    ] = False,
) -> None:
    """Run a program on all cards of a cluster, over ssh or in network namespaces."""
    from isthmus_cluster import inventory as inventories
    from isthmus_cluster import run
    from isthmus_cluster.render.job import Job

    with exit_on(ClusterError):
        arguments.check_program(program, context)
        given = {"--log-dir": log_dir, "--local-ranks-filter": shown}
        options = [word for name, value in given.items() if value for word in (name, value)]
        where = directory or str(Path.cwd())
        job = Job(inventories.read(inventory), program, port, interface, where, variables=env or [])
        job.check()
        status = run.run(job, python or sys.executable, options, progress=progress)
    if status:
        raise typer.Exit(status)
