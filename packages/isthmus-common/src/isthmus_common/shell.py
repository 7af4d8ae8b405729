"""The ``isthmus`` command.

A package adds its commands by entry points of the group ``isthmus.commands``: the name of a command and the module
of its command line, which is imported when the command is called. The module has one command group, ``app``, or a
function ``add_to`` that adds commands to a Typer application. A function ``prepare`` of it may rewrite the arguments
that follow the command's name, before they are parsed.
"""

import sys
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from isthmus_common import __version__
from isthmus_common.exits import ends_with_reader
from isthmus_common.own import PACKAGES
from isthmus_common.text import NO_TORCH

GROUP = "isthmus.commands"

# Command, the package that has it, and its description, for each heading of the help.
COMMANDS = {
    "Run": {
        "run": ("isthmus", "Run a CUDA script, a module or a launcher on the available accelerator."),
        "infer": ("isthmus", "Run an exported model (.pt2 or .onnx) and measure it."),
        "ascend": ("isthmus", "Run programs for Ascend NPUs on a machine without one."),
    },
    "Move a project": {
        "data": ("isthmus-formats", "Convert and tokenize data sets, and look into their files."),
        "migrate": ("isthmus-migrate", "Analyse what binds a project to CUDA, convert it, and verify it."),
        "megatron": ("isthmus", "Explain what the adaptor changes in Megatron."),
        "checkpoint": (
            "isthmus-formats",
            "Convert, reshard, inspect and compare checkpoints of any framework.",
        ),
    },
    "Run a cluster": {
        "cluster": ("isthmus-cluster", "Run jobs on a cluster; make rank tables and launch files."),
        "security": ("isthmus-cluster", "Check permissions, umask and open ports; repair permissions."),
    },
    "Judge a chip": {
        "conform": ("isthmus", "Test whether a chip implements the operator interface."),
        "ops": ("isthmus", "Print the route of every ATen operator on the chip, with the reason."),
    },
    "Fit a job in memory": {
        "plan": ("isthmus-diagnostics", "Plan recompute within the memory of a device, or a parallel layout.")
    },
    "Look inside a job": {
        "accuracy": (
            "isthmus-diagnostics",
            "Compare the calls of two runs of a job, and name the first that differs.",
        ),
        "debug": ("isthmus-diagnostics", "Attach to a running job: state, overflows, comparisons, timings."),
        "replay": ("isthmus-diagnostics", "Run a recorded operator call again."),
        "bisect": ("isthmus-diagnostics", "Find the operator that makes a program's results differ."),
        "profile": ("isthmus-diagnostics", "Analyse Chrome traces written by torch.profiler."),
        "memory": ("isthmus", "Trace what training allocates, and compare allocators on traces."),
    },
    "This environment": {
        "doctor": (
            "isthmus",
            "Check this environment: versions, libraries, limits, plugins, driver, devices.",
        ),
        "env": ("isthmus", "List every option: variable, current value, default, meaning."),
    },
}


@cache
def installed_commands() -> dict[str, EntryPoint]:
    """Return the commands of the installed packages, by name."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _known_commands() -> Iterator[tuple[str, str, str]]:
    """Yield the name, package and description of each command of COMMANDS."""
    for group in COMMANDS.values():
        for name, (package, text) in group.items():
            yield name, package, text


def _other_commands() -> list[tuple[str, str]]:
    """Return the names of commands that are not in COMMANDS, each with its package."""
    known = {name for name, _, _ in _known_commands()}
    found = [
        (name, entry.dist.name if entry.dist else "")
        for name, entry in installed_commands().items()
        if name not in known
    ]
    return sorted(found)


class Commands(TyperGroup):
    """Commands in groups; a command is imported when it is called, so that help is immediate."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the help."""
        return [*(name for name, _, _ in _known_commands()), *(name for name, _ in _other_commands())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, imported if necessary; None if it is unknown.

        Raises:
            SystemExit: with status 2, if its package is not installed.
        """
        if cmd_name not in self.commands and cmd_name in self.list_commands(ctx):
            if cmd_name not in installed_commands():
                package = next(package for name, package, _ in _known_commands() if name == cmd_name)
                print(f"isthmus {cmd_name} needs {package}: pip install {package}", file=sys.stderr)
                raise SystemExit(2)
            self.commands.update(_commands(cmd_name))
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments name.

        Raises:
            UsageError: it is unknown; the message has similar names, also of commands that are not imported.
        """
        if args[0] not in self.list_commands(ctx) and (
            alike := get_close_matches(args[0], self.list_commands(ctx))
        ):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {', '.join(map(repr, alike))}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands under the headings of their groups, with the package of those that are absent."""
        for heading, group in COMMANDS.items():
            rows = [
                (name, text if name in installed_commands() else f"{text} (needs {package})")
                for name, (package, text) in group.items()
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)
        if others := _other_commands():
            with formatter.section("Of other packages"):
                formatter.write_dl([(name, f"From {package}.") for name, package in others])


def _commands(name: str) -> dict[str, Any]:
    """Import the command line of a command, which may have more than that one."""
    feature = installed_commands()[name].load()
    if hasattr(feature, "add_to"):
        holder = typer.Typer(rich_markup_mode=None)
        holder.callback()(lambda: None)  # with a callback, a single command stays in a group
        feature.add_to(holder)
        return dict(typer.main.get_group(holder).commands)
    group = typer.main.get_group(feature.app)
    group.name = name
    return {name: group}


app = typer.Typer(
    help="The land bridge between PyTorch and an accelerator.",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Entry point of the command; exits with 0, 1 (something is wrong) or 2 (wrong usage)."""
    arguments = sys.argv[1:]
    try:
        with ends_with_reader():
            app(_prepare_arguments(arguments), prog_name="isthmus")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        command = f"isthmus {' '.join(arguments[:1])}"
        if missing == "torch":
            print(f"{command}: {NO_TORCH}", file=sys.stderr)
            sys.exit(1)
        if missing not in PACKAGES:
            raise
        package = missing.replace("_", "-")
        print(f"{command}: this needs {package}: pip install {package}", file=sys.stderr)
        sys.exit(2)


def _prepare_arguments(arguments: list[str]) -> list[str]:
    if not arguments or arguments[0] not in installed_commands():
        return arguments
    prepare = getattr(installed_commands()[arguments[0]].load(), "prepare", None)
    return [arguments[0], *prepare(arguments[1:])] if prepare else arguments


def _version(asked: bool) -> None:
    if asked:
        print(f"isthmus {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
