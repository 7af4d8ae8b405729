"""The commands of ``isthmus``, of this and other packages.

A package adds its commands by entry points of the group ``isthmus.commands``: the name of a command and the module
of its command line, which is imported when the command is called. The module has one command group, ``app``, or a
function ``add_to`` that adds commands to a Typer application (:mod:`isthmus_common.application`), or a function
``main`` that takes the arguments and returns the exit status, for a command that starts without Typer.
"""

from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points

GROUP = "isthmus.commands"

# For each heading of the help: command, the package that has it, and what it does.
COMMANDS = {
    "Run": {
        "run": ("isthmus", "Run a CUDA script, a module or a launcher on the available accelerator."),
        "infer": ("isthmus", "Run an exported model (.pt2 or .onnx) and measure it."),
        "vllm": ("isthmus-vllm", "Say whether vLLM serves models on the chip, and why not."),
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
        "triton": ("isthmus-triton", "Compare a Triton kernel compiled, interpreted and in PyTorch."),
        "profile": ("isthmus-diagnostics", "Analyse Chrome traces written by torch.profiler."),
        "memory": ("isthmus", "Trace what training allocates, and compare allocators on traces."),
    },
    "This environment": {
        "doctor": (
            "isthmus",
            "Check this environment: versions, libraries, limits, plugins, driver, devices.",
        ),
        "env": ("isthmus", "List every option: variable, current value, default, meaning."),
        "build": ("isthmus", "Compile the C++ core for the PyTorch that is installed."),
    },
}


@cache
def installed_commands() -> dict[str, EntryPoint]:
    """Return the commands of the installed packages, by name."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def known_commands() -> Iterator[tuple[str, str, str]]:
    """Yield the name, package and description of each command of COMMANDS."""
    for group in COMMANDS.values():
        for name, (package, text) in group.items():
            yield name, package, text


def other_commands() -> list[tuple[str, str]]:
    """Return the names of commands that are not in COMMANDS, each with its package."""
    listed = {name for name, _, _ in known_commands()}
    found = [
        (name, entry.dist.name if entry.dist else "")
        for name, entry in installed_commands().items()
        if name not in listed
    ]
    return sorted(found)
