"""Arguments that several commands of ``isthmus cluster`` have."""

from pathlib import Path
from typing import Annotated

import typer

INVENTORY = Path("cluster.yaml")
Inventory = Annotated[Path, typer.Option("--inventory", "-i", help="Inventory to read.")]
Python = Annotated[str, typer.Option(help="Python with Isthmus on every host. Default: this one.")]
Variables = Annotated[
    list[str] | None, typer.Option("--env", help="Further NAME=VALUE of the environment; repeatable.")
]
