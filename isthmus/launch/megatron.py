"""``isthmus megatron``: what ``import isthmus.megatron`` does to the Megatron that is installed."""

from __future__ import annotations

import sys

import typer

app = typer.Typer(help="The adaptor for Megatron.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    pass


@app.command()
def explain() -> None:
    """Print every patch with its reason; exit with 1 where one does not fit the Megatron that is installed."""
    try:
        from isthmus.megatron.explain import explanation

        text, fits = explanation()
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "megatron":
            print(f"isthmus: megatron.core cannot be imported: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        remedy = "pip install 'isthmus[megatron]', or put a checkout of Megatron-LM on PYTHONPATH"
        print(f"isthmus: Megatron is not installed ({error}); {remedy}", file=sys.stderr)
        raise typer.Exit(1) from None
    except RuntimeError as error:
        print(f"isthmus: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    print(text)
    if not fits:
        raise typer.Exit(1)
