"""The commands ``isthmus build``, ``env``, ``doctor``, ``ops`` and ``megatron``.

They import what they need when they run. That of Megatron is here because the import of isthmus.megatron adapts
Megatron and needs PyTorch.
"""

import json
import sys
from typing import Annotated, Any

import typer

import isthmus
from isthmus_common.exits import fail
from isthmus_common.tables import print_table

ROUTES = ("native", "kernel", "delegate", "decomposition", "fallback", "none")


def add_to(app: typer.Typer) -> None:
    """Add the commands to `isthmus`."""
    for command in (build, env, doctor, ops):
        app.command()(command)
    megatron = typer.Typer(help="The adaptor for Megatron.", no_args_is_help=True, rich_markup_mode=None)
    megatron.callback()(lambda: None)  # with a callback, a single command stays in a group
    megatron.command("explain")(explain_megatron)
    app.add_typer(megatron, name="megatron")


def build() -> None:
    """Compile the C++ core and the kernels for the PyTorch of this environment; takes minutes."""
    import signal

    from isthmus.binaries import compiling

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that nothing is left
    try:
        made = compiling.compile_for_installed_torch()
    except compiling.CannotCompile as error:
        raise fail(error) from None
    print(f"isthmus: built for PyTorch {made.torch}: {made.folder}")


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
    problems += [f"{name}: no such option; `isthmus env` lists them" for name in config.unknown_variables()]
    for problem in problems:
        print(f"isthmus: {problem}", file=sys.stderr)
    if problems:
        raise typer.Exit(1)


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Check this environment: versions, libraries, variables, limits, permissions, plugins, driver, devices."""
    from isthmus.doctor.report import main as report

    raise typer.Exit(report(as_json))


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
