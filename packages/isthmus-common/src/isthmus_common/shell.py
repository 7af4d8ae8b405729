"""The ``isthmus`` command.

A package adds its commands by entry points of the group ``isthmus.commands``: the name of a command and the module
of its command line, which is imported when the command is called. The module has one command group, ``app``, or a
function ``add_to`` that adds commands to a Typer application (:mod:`isthmus_common.application`), or a function
``main`` that takes the arguments and returns the exit status, for a command that starts without Typer.
"""

import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from isthmus_common.exits import ends_with_reader
from isthmus_common.own import PACKAGES
from isthmus_common.text import NO_TORCH

GROUP = "isthmus.commands"

# Command, the package that has it, and its description, for each heading of the help.
COMMANDS = {
    "Run": {
        "run": ("isthmus", "Run a CUDA script, a module or a launcher on the available accelerator."),
        "infer": ("isthmus", "Run an exported model (.pt2 or .onnx) and measure it."),
        "ascend": ("isthmus-ascend", "Run programs for Ascend NPUs on a machine without one."),
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


def known() -> Iterator[tuple[str, str, str]]:
    """Yield the name, package and description of each command of COMMANDS."""
    for group in COMMANDS.values():
        for name, (package, text) in group.items():
            yield name, package, text


def others() -> list[tuple[str, str]]:
    """Return the names of commands that are not in COMMANDS, each with its package."""
    listed = {name for name, _, _ in known()}
    found = [
        (name, entry.dist.name if entry.dist else "")
        for name, entry in installed_commands().items()
        if name not in listed
    ]
    return sorted(found)


def main() -> None:
    """Entry point of the command; exits with 0, 1 (something is wrong) or 2 (wrong usage)."""
    arguments = sys.argv[1:]
    try:
        with ends_with_reader():
            feature = (
                installed_commands()[arguments[0]].load()
                if arguments and arguments[0] in installed_commands()
                else None
            )
            if feature is not None and hasattr(feature, "main"):
                sys.exit(feature.main(arguments[1:]))
            from isthmus_common.application import app

            app(arguments, prog_name="isthmus")
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
