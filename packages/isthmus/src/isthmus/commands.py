"""The commands ``isthmus build``, ``env``, ``doctor``, ``ops`` and ``megatron``.

They import what they need when they run. That of Megatron is here because the import of isthmus.megatron adapts
Megatron and needs PyTorch.
"""

import json
import os
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
    driver: Annotated[
        str, typer.Option(help="Driver: a name, or the path of its driver.toml or library.")
    ] = "",
    model: Annotated[
        str,
        typer.Option(
            help="Only operators that this model calls and the chip has no kernel for, most calls first: the folder "
            "of a Hugging Face config.json, or package.module:Class, an nn.Module or a function that returns one."
        ),
    ] = "",
    shapes: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            help="Shape and dtype of an argument of the model: 1x3x224x224, 1x512:int64; repeatable.",
        ),
    ] = None,
    train: Annotated[
        bool, typer.Option("--train", help="Also backward, clipping of gradients and AdamW.")
    ] = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run the code that a config.json brings along.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON; of a model all operators, those with a kernel too.")
    ] = False,
) -> None:
    """Print the route of every ATen operator on the chip, and why; or which kernels a model needs and the chip lacks.

    A model is called with tensors that have no data: neither weights nor a device are needed.
    """
    if driver:
        from isthmus.drivers import find

        if problem := find(driver).problem:
            raise fail(problem)
        os.environ["ISTHMUS_DRIVER"] = driver
    if (shapes or train or trust_remote_code) and not model:
        raise fail("--input, --train and --trust-remote-code: of a model; give --model", 2)
    routes = _routes(route)
    pattern = pattern if "::" in pattern or "*" in pattern else f"aten::{pattern}"
    if model:
        _print_model(model, shapes or [], train, trust_remote_code, pattern, route, as_json)
    else:
        _print_routes(routes, pattern, route, as_json)


def _routes(route: str) -> dict[str, tuple[str, str]]:
    """Return the routes of the chip; exit if it is not registered, or the route of an option does not exist."""
    import torch

    chip: Any = getattr(torch, "chip", None)
    if chip is None or not isthmus.status().registered:
        raise fail(f"the chip is not registered: {isthmus.status().reason}")
    if route and route not in ROUTES:
        raise fail(f"--route {route}: no such route; there are {', '.join(ROUTES)}", 2)
    return chip.routes()


def _print_routes(routes: dict[str, tuple[str, str]], pattern: str, route: str, as_json: bool) -> None:
    from isthmus.opset.names import matches

    found = {
        name: entry
        for name, entry in sorted(routes.items())
        if (not route or entry[0] == route) and matches(name, pattern)
    }
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


def _print_model(
    name: str, shapes: list[str], train: bool, trust_code: bool, pattern: str, route: str, as_json: bool
) -> None:
    from isthmus.coverage import models, record, report
    from isthmus.opset.names import matches

    try:
        model = models.load(name, [models.parse_input(each) for each in shapes], trust_code)
        made = record.record(name, model, train)
    except models.ModelError as error:
        raise fail(error) from None
    found = [
        each
        for each in made.operators
        if matches(each.name, pattern) and (each.route == route if route else as_json or each.is_lacking)
    ]
    if as_json:
        print(json.dumps(report.to_json(made, found), indent=2))
        return
    if found:
        print_table(report.HEAD, report.rows(found))
    print("\n".join(report.summary(made)))


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
