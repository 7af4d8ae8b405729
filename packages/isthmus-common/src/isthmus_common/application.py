"""The ``isthmus`` command as a Typer application: its help, and the commands of the packages."""

import sys
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from isthmus_common import __version__, commands


class Commands(TyperGroup):
    """Commands in groups; a command is imported when it is called, so that help is immediate."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the help."""
        return [
            *(name for name, _, _ in commands.known_commands()),
            *(name for name, _ in commands.other_commands()),
        ]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, imported if necessary; None if it is unknown.

        Raises:
            SystemExit: with status 2, if its package is not installed.
        """
        if cmd_name not in self.commands and cmd_name in self.list_commands(ctx):
            if cmd_name not in commands.installed_commands():
                package = next(package for name, package, _ in commands.known_commands() if name == cmd_name)
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
        for heading, group in commands.COMMANDS.items():
            rows = [
                (name, text if name in commands.installed_commands() else f"{text} (needs {package})")
                for name, (package, text) in group.items()
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)
        if others := commands.other_commands():
            with formatter.section("Of other packages"):
                formatter.write_dl([(name, f"From {package}.") for name, package in others])


def _commands(name: str) -> dict[str, Any]:
    """Import the command line of a command, which may have more than that one."""
    feature = commands.installed_commands()[name].load()
    if hasattr(feature, "app"):
        group = typer.main.get_group(feature.app)
        group.name = name
        return {name: group}
    holder = typer.Typer(rich_markup_mode=None)
    holder.callback()(lambda: None)  # with a callback, a single command stays in a group
    if hasattr(feature, "main"):

        def run(context: typer.Context) -> None:
            raise typer.Exit(feature.main(context.args))

        settings = {
            "ignore_unknown_options": True,
            "allow_extra_args": True,
            "allow_interspersed_args": False,
        }
        holder.command(name, context_settings=settings, add_help_option=False)(run)
    else:
        feature.add_to(holder)
    return dict(typer.main.get_group(holder).commands)


app = typer.Typer(
    help="The land bridge between PyTorch and an accelerator.",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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
