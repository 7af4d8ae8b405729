"""Arguments that several commands of ``isthmus cluster`` have."""

import ctypes
import os
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from isthmus_cluster.errors import ClusterError

INVENTORY = Path("cluster.yaml")
Inventory = Annotated[Path, typer.Option("--inventory", "-i", help="Inventory to read.")]
Python = Annotated[str, typer.Option(help="Python with Isthmus on every host. Default: this one.")]


def _variables(values: list[str] | None) -> list[str]:
    """Complete NAME with its value in this environment, and mask values in this process's command line."""
    _hide(values or [])
    return [f"{each}={os.environ[each]}" if each in os.environ else each for each in values or []]


def _hide(values: Sequence[str]) -> None:
    """Overwrite the values of ``--env`` where the kernel shows the arguments of this process to other users.

    Without /proc, or if the kernel hides the address of the arguments, they stay as they are.
    """
    if not values:
        return
    try:
        words = Path("/proc/self/cmdline").read_bytes().split(b"\0")
        # Field 48 of proc(5); the second may contain spaces.
        place = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45])
    except OSError:
        return
    if not place:
        return
    given = {prefix + os.fsencode(each) for each in values for prefix in (b"", b"--env=")}
    for word in words:
        if word in given:
            _, _, value = word.removeprefix(b"--env=").partition(b"=")
            ctypes.memset(place + len(word) - len(value), ord("*"), len(value))
        place += len(word) + 1


Variables = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME[=VALUE]",
        help="Further variable of the environment, by default with the value that it has here; repeatable.",
        callback=_variables,
    ),
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
