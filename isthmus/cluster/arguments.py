"""Arguments that several commands of ``isthmus cluster`` have."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from isthmus.cluster.errors import ClusterError

INVENTORY = Path("cluster.yaml")
Inventory = Annotated[Path, typer.Option("--inventory", "-i", help="Inventory to read.")]
Python = Annotated[str, typer.Option(help="Python with Isthmus on every host. Default: this one.")]
Variables = Annotated[
    list[str] | None, typer.Option("--env", help="Further NAME=VALUE of the environment; repeatable.")
]


def check_program(program: Sequence[str], context: typer.Context) -> None:
    """Check that a program does not begin with an option, such as a misspelt one of the command.

    Raises:
        ClusterError: it does; ``-m`` is allowed.
    """
    first = program[0].partition("=")[0] if program else ""
    if not first.startswith("-") or first == "-m":
        return
    known = [name for each in context.command.params for name in each.opts if name.startswith("-")]
    near = get_close_matches(first, known, 1)
    if first in known:
        remedy = "options stand before all other arguments"
    else:
        remedy = f"unknown option; did you mean {near[0]}?" if near else "unknown option; see --help"
    raise ClusterError(f"{first}: {remedy}")
