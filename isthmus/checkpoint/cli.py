"""``isthmus checkpoint``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus._support.exits import fail
from isthmus.checkpoint.errors import CheckpointError

if TYPE_CHECKING:
    from isthmus.checkpoint.source import Source

app = typer.Typer(
    help="Convert, reshard, inspect and compare checkpoints of any framework, without loading a model.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Checkpoint = Annotated[Path, typer.Argument(help="Folder of the checkpoint.", show_default=False)]
Written = Annotated[Path, typer.Argument(help="Folder to write; must not exist.", show_default=False)]
From = Annotated[str, typer.Option("--from", help="Format of the source; detected by default.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="The model's config.json, if the checkpoint has none.")
]
Pickle = Annotated[bool, typer.Option("--allow-pickle", help="Execute the code that a file asks for. Trusted files only.")]
Ignore = Annotated[str, typer.Option(help="Leave out tensors whose names match this regular expression.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Size = Annotated[int, typer.Option(min=1, help="Ranks of this parallelism.")]
Dtype = Annotated[str, typer.Option(help="Cast floating-point parameters: float32, float16 or bfloat16.")]
Workers = Annotated[int, typer.Option(min=1, help="Threads.")]


@contextmanager
def _errors() -> Iterator[None]:
    """Turn errors of the input and of files into one line and the exit status 1."""
    try:
        yield
    except CheckpointError as error:
        raise fail(error) from None
    except OSError as error:
        raise fail(f"{error.filename}: {error.strerror}") from None


def _print(as_json: bool, value: dict[str, Any], line: str) -> None:
    print(json.dumps(value, indent=2) if as_json else line)


@app.command()
def convert(
    source: Checkpoint,
    target: Written,
    to: Annotated[str, typer.Option(help="Format to write; `isthmus checkpoint formats` lists them.")],
    from_: From = "",
    config: ConfigFile = None,
    tp: Size = 1,
    pp: Size = 1,
    vpp: Size = 1,
    ep: Size = 1,
    dp: Size = 1,
    stages: Annotated[str, typer.Option(help="Layers of each (virtual) stage, such as 7,8,8,7.")] = "",
    names: Annotated[str, typer.Option(help="Variant of the format's names.")] = "",
    rotary: Annotated[str, typer.Option(help="Rotary layout: half or interleaved; by default the format's own.")] = "",
    pad_vocabulary: Annotated[
        int, typer.Option(min=1, help="Pad the vocabulary to a multiple of this times --tp.")
    ] = 1,
    dtype: Dtype = "",
    workers: Workers = 2,
    allow_pickle: Pickle = False,
    ignore: Ignore = "",
    as_json: Json = False,
) -> None:
    """Convert a checkpoint to another format.

    Example: isthmus checkpoint convert llama/ llama-megatron/ --to megatron --tp 2 --pp 2
    """
    from isthmus.checkpoint.convert import Target
    from isthmus.checkpoint.convert import convert as run
    from isthmus.checkpoint.formats import named
    from isthmus.checkpoint.source import open_source
    from isthmus.checkpoint.target import layout

    with _errors():
        opened = open_source(source, format=from_, config=config, allow_pickle=allow_pickle, ignore=ignore)
        kind = named(to)
        wanted = layout(
            kind, opened.model, tp=tp, pp=pp, vpp=vpp, ep=ep, dp=dp, stages=stages, names=names, rotary=rotary,
            padding=pad_vocabulary,
        )
        manifest = run(opened, Target(target, kind, wanted, _dtype(dtype), workers=workers))
    _print(as_json, _summary(manifest), f"{target}: {len(manifest['tensors'])} tensors, {kind.name}")


def _summary(manifest: dict[str, Any]) -> dict[str, Any]:
    return {"format": manifest["format"], "layout": manifest["layout"], "tensors": len(manifest["tensors"])}


def _dtype(name: str) -> Any:
    import torch

    if name not in {"", "float32", "float16", "bfloat16"}:
        raise CheckpointError(f"--dtype {name}: expected float32, float16 or bfloat16")
    return getattr(torch, name) if name else None
