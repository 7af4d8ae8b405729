"""``isthmus cluster``: inventory, rank tables and launch scripts of a cluster."""

from pathlib import Path
from typing import Annotated

import typer

from isthmus._support.exits import one_line
from isthmus._support.text import count
from isthmus.cluster.errors import ClusterError
from isthmus.cluster.ranktable.cli import app as ranktable

app = typer.Typer(
    help="Describe a cluster once, and run and check jobs on it.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(ranktable, name="ranktable")


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
    from isthmus.cluster import inventory, sources

    with one_line(ClusterError):
        if output.exists() and not force:
            raise ClusterError(f"{output}: exists; give another --output, or --force to replace it")
        found = sources.from_argument(source, cards)
        inventory.write(found, output)
        print(f"{output}: {count(len(found.hosts), 'host')}, {count(found.world_size, 'card')}")
