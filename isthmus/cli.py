"""The ``isthmus`` command.

The command line of a feature is its cli.py, registered by one line of COMMANDS and imported when it is called.
"""

import json
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import isthmus
from isthmus._support.exits import ends_with_reader, fail
from isthmus._support.tables import print_table

ROUTES = ("native", "kernel", "delegate", "decomposition", "fallback", "none")

# For each group of the help: command, module, and what the command does. Without a module it is in this file.
COMMANDS = {
    "Run": {
        "run": (
            "isthmus.launch.cli",
            "Run a CUDA script, a module or a launcher on the available accelerator.",
        ),
        "infer": ("isthmus.infer.cli", "Run an exported model (.pt2 or .onnx) and measure it."),
        "ascend": ("isthmus.ascend.cli", "Run programs for Ascend NPUs on a machine without one."),
    },
    "Move a project": {
        "data": ("isthmus.data.cli", "Convert and tokenize data sets, and look into their files."),
        "migrate": (
            "isthmus.migrate.cli",
            "Analyse what binds a project to CUDA, convert it, and verify it.",
        ),
        "megatron": ("", "Explain what the adaptor changes in Megatron."),
        "checkpoint": (
            "isthmus.checkpoint.cli",
            "Convert, reshard, inspect and compare checkpoints of any framework.",
        ),
    },
    "Run a cluster": {
        "cluster": ("isthmus.cluster.cli", "Run jobs on a cluster; make rank tables and launch files."),
        "security": (
            "isthmus.cluster.security",
            "Check permissions, umask and open ports; repair permissions.",
        ),
    },
    "Judge a chip": {
        "conform": ("isthmus.conformance.cli", "Test whether a chip implements the operator interface."),
        "ops": ("", "Print the route of every ATen operator on the chip, with the reason."),
    },
    "Fit a job in memory": {
        "plan": ("isthmus.plan.cli", "Plan recompute within the memory of a device, or a parallel layout.")
    },
    "Look inside a job": {
        "accuracy": (
            "isthmus.accuracy.cli",
            "Compare the calls of two runs of a job, and name the first that differs.",
        ),
        "debug": ("isthmus.debug.cli", "Attach to a running job: state, overflows, comparisons, timings."),
        "replay": ("isthmus.debug.cli", "Run a recorded operator call again."),
        "bisect": ("isthmus.debug.cli", "Find the operator that makes a program's results differ."),
        "profile": ("isthmus.profile.cli", "Analyse Chrome traces written by torch.profiler."),
        "memory": ("isthmus.memory.cli", "Trace what training allocates, and compare allocators on traces."),
    },
    "This environment": {
        "doctor": ("", "Check this environment: versions, libraries, limits, plugins, driver, devices."),
        "env": ("", "List every option: variable, current value, default, meaning."),
    },
}


class Commands(TyperGroup):
    """Commands in groups; a command is imported when it is called, so that help is immediate."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the help."""
        return [name for group in COMMANDS.values() for name in group]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, imported if necessary; None if it is unknown."""
        module = next((group[cmd_name][0] for group in COMMANDS.values() if cmd_name in group), "")
        if module and cmd_name not in self.commands:
            self.commands.update(_commands(module, cmd_name))
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments name.

        Raises:
            UsageError: it is unknown; the message has similar names, also of commands that are not imported.
        """
        alike = get_close_matches(args[0], self.list_commands(ctx))
        if alike and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {', '.join(map(repr, alike))}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands under the headings of their groups."""
        for heading, group in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, text) for name, (_, text) in group.items()])


def _commands(module: str, name: str) -> dict[str, Any]:
    """Import the command line of a feature: one command group, ``app``, or commands added by ``add_to``."""
    feature = import_module(module)
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
# Here, because the import of isthmus.megatron adapts Megatron and needs PyTorch.
megatron = typer.Typer(help="The adaptor for Megatron.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(megatron, name="megatron")


def main() -> None:
    """Entry point of the command; exits with 0, 1 (something is wrong) or 2 (wrong usage)."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] == "run":
        from isthmus.launch.run import separate_program

        arguments = ["run", *separate_program(arguments[1:])]
    try:
        with ends_with_reader():
            app(arguments, prog_name="isthmus")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        from isthmus.doctor import NO_TORCH

        print(f"isthmus {' '.join(arguments[:1])}: {NO_TORCH}", file=sys.stderr)
        sys.exit(1)


def _version(asked: bool) -> None:
    if asked:
        print(f"isthmus {isthmus.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def env(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List every option: environment variable, current value, default, who reads it, meaning."""
    from isthmus import config

    options = config.options()
    if as_json:
        print(json.dumps([option._asdict() for option in options], indent=2))
    else:
        print_table(
            ["variable", "value", "default", "read by", "meaning"],
            [
                [o.variable, o.value + (" *" if o.is_set else ""), o.default, o.reader, o.meaning]
                for o in options
            ],
        )
        print("* set in the environment")
    problems = [f"{o.variable}={o.value}: {o.problem}" for o in options if o.problem]
    problems += [f"{name}: no such option; `isthmus env` lists them" for name in config.unknown()]
    for problem in problems:
        print(f"isthmus: {problem}", file=sys.stderr)
    if problems:
        raise typer.Exit(1)


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Check this environment: versions, libraries, variables, limits, permissions, plugins, driver, devices."""
    from isthmus.doctor.report import main as report

    raise typer.Exit(report(as_json))


@app.command()
def ops(
    pattern: Annotated[str, typer.Argument(help="Only operators that match, such as 'add*'.")] = "*",
    route: Annotated[str, typer.Option(help="Only operators on this route.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the route of every ATen operator on the chip, and why."""
    found = _routes(pattern, route)
    if not found:
        raise fail(
            f"{pattern}: no operator matches{f' on the route {route}' if route else ''}; `isthmus ops` lists them"
        )
    if as_json:
        print(
            json.dumps(
                {name: {"route": where, "reason": why} for name, (where, why) in found.items()}, indent=2
            )
        )
        return
    print_table(["operator", "route", "reason"], [[name, *entry] for name, entry in found.items()])
    counts: dict[str, int] = {}
    for where, _ in found.values():
        counts[where] = counts.get(where, 0) + 1
    print(
        f"{len(found)} operators: " + ", ".join(f"{count} {where}" for where, count in sorted(counts.items()))
    )


def _routes(pattern: str, route: str) -> dict[str, tuple[str, str]]:
    import torch

    from isthmus.opset.names import matches

    chip: Any = getattr(torch, "chip", None)
    if chip is None or not isthmus.status().registered:
        raise fail(f"the chip is not registered: {isthmus.status().reason}")
    routes: dict[str, tuple[str, str]] = chip.routes()
    if route and route not in ROUTES:
        raise fail(f"--route {route}: no such route; there are {', '.join(ROUTES)}", 2)
    pattern = pattern if "::" in pattern or "*" in pattern else f"aten::{pattern}"
    return {
        name: entry
        for name, entry in sorted(routes.items())
        if (not route or entry[0] == route) and matches(name, pattern)
    }


@megatron.callback()
def _megatron() -> None:
    pass


@megatron.command("explain")
def explain_megatron() -> None:
    """Print every patch with its reason; exit with 1 where one does not fit the Megatron that is installed."""
    try:
        from isthmus.megatron.explain import explanation

        text, fits = explanation()
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "megatron":
            raise fail(f"megatron.core cannot be imported: {error}") from None
        remedy = "pip install 'isthmus[megatron]', or put a checkout of Megatron-LM on PYTHONPATH"
        raise fail(f"Megatron is not installed ({error}); {remedy}") from None
    except RuntimeError as error:
        raise fail(error) from None
    print(text)
    if not fits:
        raise typer.Exit(1)
