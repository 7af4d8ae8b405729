"""``isthmus megatron``: what ``import isthmus.megatron`` does to the Megatron that is installed."""

from __future__ import annotations

import typer

from isthmus._support.exits import fail

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
            raise fail(f"megatron.core cannot be imported: {error}") from None
        remedy = "pip install 'isthmus[megatron]', or put a checkout of Megatron-LM on PYTHONPATH"
        raise fail(f"Megatron is not installed ({error}); {remedy}") from None
    except RuntimeError as error:
        raise fail(error) from None
    print(text)
    if not fits:
        raise typer.Exit(1)
