"""``isthmus checkpoint``: convert, inspect and compare checkpoints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus_common.exits import exit_on
from isthmus_common.tables import print_table
from isthmus_common.units import parse_size
from isthmus_formats.checkpoint.errors import CheckpointError, UsageError

if TYPE_CHECKING:
    from isthmus_formats.checkpoint.convert import Target
    from isthmus_formats.checkpoint.source import Source

app = typer.Typer(
    help="Convert, reshard, inspect and compare checkpoints of any framework, without loading a model.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
strategy = typer.Typer(
    help="Read, convert and merge MindSpore's strategy files.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(strategy, name="strategy")

Checkpoint = Annotated[Path, typer.Argument(help="Folder of the checkpoint.", show_default=False)]
Written = Annotated[Path, typer.Argument(help="Folder to write; must not exist.", show_default=False)]
From = Annotated[str, typer.Option("--from", help="Format of the source; detected by default.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="The model's config.json, if the checkpoint has none.")
]
Pickle = Annotated[
    bool,
    typer.Option("--allow-pickle", help="Execute the code that a file asks for; for trusted files only."),
]
Ignore = Annotated[str, typer.Option(help="Leave out tensors whose names match this regular expression.")]
StrategyFiles = Annotated[
    list[Path] | None, typer.Option("--strategy", help="MindSpore's strategy files, where ranks have slices.")
]
StrategyFile = Annotated[Path, typer.Argument(help="A strategy file: .json, else protocol buffer.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Size = Annotated[int, typer.Option(min=1, help="Ranks of this parallelism.")]
Stages = Annotated[str, typer.Option(help="Layers of each (virtual) stage, such as 7,8,8,7.")]
Padding = Annotated[int, typer.Option(min=1, help="Pad the vocabulary to a multiple of this times --tp.")]
Dtype = Annotated[str, typer.Option(help="Cast floating-point parameters: float32, float16 or bfloat16.")]
Workers = Annotated[int, typer.Option(min=1, help="Threads.")]
_DTYPES = ("float32", "float16", "bfloat16")


def _open(
    folder: Path,
    format: str = "",
    config: Path | None = None,
    *,
    allow_pickle: bool = False,
    strategy: list[Path] | None = None,
    ignore: str = "",
) -> Source:
    from isthmus_formats.checkpoint.formats.base import Options
    from isthmus_formats.checkpoint.source import open_source

    _check_expression("--ignore", ignore)
    options = Options(allow_pickle, strategy or ())
    return open_source(folder, format=format, config=config, options=options, ignore=ignore)


def _check_expression(option: str, text: str) -> None:
    try:
        re.compile(text)
    except re.error as error:
        raise UsageError(f"{option} {text}: not a regular expression: {error}") from None


def _dtype(name: str) -> Any:
    import torch

    if name and name not in _DTYPES:
        raise UsageError(f"--dtype {name}: expected {', '.join(_DTYPES)}")
    return getattr(torch, name) if name else None


def _run(source: Source, target: Target, as_json: bool) -> None:
    """Convert, and print what was written."""
    from isthmus_formats.checkpoint.convert import convert as run

    manifest = run(source, target)
    if as_json:
        summary = {name: manifest[name] for name in ("format", "layout")}
        print(json.dumps({**summary, "tensors": len(manifest["tensors"])}, indent=2))
    else:
        print(f"{target.folder}: {len(manifest['tensors'])} tensors, {target.format.name}")
        if target.layout.vocabulary > source.model.vocabulary:
            print(f"vocabulary: {source.model.vocabulary} rows, padded to {target.layout.vocabulary}")


@app.command()
def formats(as_json: Json = False) -> None:
    """List the formats with their parallel sizes and variants of names.

    Example: isthmus checkpoint formats
    """
    from isthmus_formats.checkpoint.architectures import supported_types
    from isthmus_formats.checkpoint.formats import formats as known

    rows: list[dict[str, Any]] = [
        {
            "format": each.name,
            "meaning": each.meaning,
            "sizes": each.sharded,
            "names": [*filter(None, each.names)],
        }
        for each in known().values()
    ]
    if as_json:
        print(json.dumps({"formats": rows, "architectures": supported_types()}, indent=2))
        return
    print_table(
        ["format", "sizes", "names", "meaning"],
        [[row["format"], " ".join(row["sizes"]), " ".join(row["names"]), row["meaning"]] for row in rows],
    )
    print(f"architectures: {', '.join(supported_types())}")


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
    stages: Stages = "",
    names: Annotated[str, typer.Option(help="Variant of the format's names.")] = "",
    rotary: Annotated[
        str, typer.Option(help="Rotary layout: half or interleaved; by default the format's own.")
    ] = "",
    pad_vocabulary: Padding = 1,
    dtype: Dtype = "",
    workers: Workers = 2,
    allow_pickle: Pickle = False,
    ignore: Ignore = "",
    strategy: StrategyFiles = None,
    as_json: Json = False,
) -> None:
    """Convert a checkpoint to another format.

    Example: isthmus checkpoint convert llama/ llama-megatron/ --to megatron --tp 2 --pp 2
    """
    from isthmus_formats.checkpoint.convert import Target
    from isthmus_formats.checkpoint.formats import find_format
    from isthmus_formats.checkpoint.target import layout

    with exit_on(CheckpointError):
        opened = _open(source, from_, config, allow_pickle=allow_pickle, strategy=strategy, ignore=ignore)
        kind = find_format(to)
        sizes = {"tp": tp, "pp": pp, "vpp": vpp, "ep": ep, "dp": dp}
        wanted = layout(
            kind, opened.model, sizes, stages=stages, names=names, rotary=rotary, padding=pad_vocabulary
        )
        _run(opened, Target(target, kind, wanted, _dtype(dtype), workers=workers), as_json)


@app.command()
def reshard(
    source: Checkpoint,
    target: Written,
    from_: From = "",
    config: ConfigFile = None,
    tp: Size = 1,
    pp: Size = 1,
    vpp: Size = 1,
    ep: Size = 1,
    dp: Size = 1,
    stages: Stages = "",
    pad_vocabulary: Padding = 1,
    workers: Workers = 2,
    allow_pickle: Pickle = False,
    ignore: Ignore = "",
    strategy: StrategyFiles = None,
    as_json: Json = False,
) -> None:
    """Distribute a checkpoint over other parallel sizes; format, names and rotary layout stay.

    Example: isthmus checkpoint reshard tp2pp2/ tp4/ --tp 4
    """
    from isthmus_formats.checkpoint.convert import Target
    from isthmus_formats.checkpoint.target import layout

    with exit_on(CheckpointError):
        opened = _open(source, from_, config, allow_pickle=allow_pickle, strategy=strategy, ignore=ignore)
        sizes = {"tp": tp, "pp": pp, "vpp": vpp, "ep": ep, "dp": dp}
        rotary = "interleaved" if opened.layout.interleaved else "half"
        wanted = layout(
            opened.format,
            opened.model,
            sizes,
            stages=stages,
            names=opened.layout.names,
            rotary=rotary,
            padding=pad_vocabulary,
        )
        _run(opened, Target(target, opened.format, wanted, workers=workers), as_json)


@app.command("shard-size")
def shard_size(
    source: Checkpoint,
    target: Written,
    size: Annotated[str, typer.Option(help="Largest size of a file, such as 5GB or 500MiB.")],
    workers: Workers = 2,
    as_json: Json = False,
) -> None:
    """Divide a Hugging Face checkpoint into files of another size.

    Example: isthmus checkpoint shard-size llama/ llama-2gb/ --size 2GB
    """
    from isthmus_formats.checkpoint.convert import Target

    with exit_on(CheckpointError):
        largest = parse_size(size, decimal=True)
        if not largest:
            raise UsageError(f"--size {size}: expected a number with KB, MB, GB, KiB, MiB or GiB")
        opened = _open(source)
        if not opened.format.name.startswith("huggingface"):
            raise CheckpointError(
                f"{source}: {opened.format.name} has no files by size; expected huggingface"
            )
        target_ = Target(target, opened.format, opened.layout, shard_size=largest, workers=workers)
        _run(opened, target_, as_json)


@app.command()
def inspect(
    source: Checkpoint,
    from_: From = "",
    config: ConfigFile = None,
    only: Annotated[str, typer.Option(help="Only tensors whose names match this regular expression.")] = "",
    check: Annotated[bool, typer.Option("--check", help="Read every tensor and check its hash.")] = False,
    allow_pickle: Pickle = False,
    ignore: Ignore = "",
    strategy: StrategyFiles = None,
    as_json: Json = False,
) -> None:
    """Show format, architecture, layout and tensors of a checkpoint, after checking names and shapes.

    Example: isthmus checkpoint inspect llama-megatron/ --only linear_qkv
    """
    from isthmus_formats.checkpoint.inspection import describe

    with exit_on(CheckpointError):
        _check_expression("--only", only)
        opened = _open(source, from_, config, allow_pickle=allow_pickle, strategy=strategy, ignore=ignore)
        found = describe(opened, only, check)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print_table(
        ["tensor", "shape", "dtype", "file"],
        [
            [each["name"], "x".join(map(str, each["shape"])), each["dtype"], each["file"]]
            for each in found["tensors"]
        ],
    )
    layout = ", ".join(f"{name} {value}" for name, value in found["layout"].items() if value)
    print(f"{found['format']}: {found['architecture']}, {found['parameters']:,} parameters; {layout}")


@app.command()
def diff(
    a: Checkpoint,
    b: Checkpoint,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Largest absolute difference that counts as equal.")
    ] = 0.0,
    config: ConfigFile = None,
    all: Annotated[bool, typer.Option("--all", help="Also list equal parameters.")] = False,
    as_json: Json = False,
) -> None:
    """Compare two checkpoints of any formats by parameter; the exit status is 1 if they differ.

    Example: isthmus checkpoint diff llama/ llama-megatron/
    """
    from isthmus_formats.checkpoint.inspection import compare

    with exit_on(CheckpointError):
        rows = compare(_open(a, config=config), _open(b, config=config))
    different = [row for row in rows if row.differs(tolerance)]
    shown = rows if all else different
    if as_json:
        print(json.dumps([row._asdict() for row in shown], indent=2))
    else:
        print_table(
            ["parameter", "shape", "dtype", "max", "relative", "cosine"], [row.cells() for row in shown]
        )
        print(f"{len(different)} of {len(rows)} parameters differ")
    if different:
        raise typer.Exit(1)


@app.command()
def average(
    sources: Annotated[list[Path], typer.Argument(help="Folders of checkpoints, then the folder to write.")],
    weights: Annotated[
        str, typer.Option(help="A weight for each checkpoint, such as 3,1; by default equal.")
    ] = "",
    config: ConfigFile = None,
    workers: Workers = 2,
    as_json: Json = False,
) -> None:
    """Average checkpoints of one model; the result has the format and layout of the first.

    Example: isthmus checkpoint average step900/ step1000/ averaged/ --weights 1,3
    """
    from isthmus_formats.checkpoint.averaging import average_checkpoints
    from isthmus_formats.checkpoint.convert import Target

    *folders, target = sources
    with exit_on(CheckpointError):
        if len(folders) < 2:
            raise UsageError("average: needs two checkpoints and the folder to write")
        source = average_checkpoints([_open(folder, config=config) for folder in folders], weights)
        _run(source, Target(target, source.format, source.layout, workers=workers), as_json)


@app.command()
def verify(
    a: Checkpoint,
    b: Checkpoint,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Largest difference of logits that counts as equal.")
    ] = 0.0,
    config: ConfigFile = None,
    tokens: Annotated[int, typer.Option(min=1, help="Number of random tokens to run.")] = 32,
    as_json: Json = False,
) -> None:
    """Load two checkpoints of any formats into transformers and compare logits; exit with 1 if they differ.

    Example: isthmus checkpoint verify llama/ llama-megatron/
    """
    from isthmus_formats.checkpoint.verification import verify as run

    with exit_on(CheckpointError):
        found = run(_open(a, config=config), _open(b, config=config), tokens)
    equal = found["max"] <= tolerance
    if as_json:
        print(json.dumps({**found, "equal": equal}, indent=2))
    else:
        print(
            f"logits {'equal' if equal else 'differ'}: max {found['max']:g}, same next token {found['same']:.1%}"
        )
    if not equal:
        raise typer.Exit(1)


@strategy.command("show")
def show_strategy(file: StrategyFile, as_json: Json = False) -> None:
    """Print the layout of each parameter.

    Example: isthmus checkpoint strategy show strategy/ckpt_strategy_rank_0.ckpt
    """
    from isthmus_formats.checkpoint import strategy as strategies

    with exit_on(CheckpointError):
        found = strategies.read(file)
    if as_json:
        print(strategies.as_json(found).decode())
        return
    print_table(
        ["parameter", "devices", "split by axes", "optimizer"],
        [
            [name, "x".join(map(str, item.devices)), str(strategies.tensor_map(item)), str(item.size or "")]
            for name, item in found.items.items()
        ],
    )


@strategy.command("convert")
def convert_strategy(
    file: StrategyFile,
    target: Annotated[Path, typer.Argument(help="File to write: .json, else protocol buffer.")],
    as_json: Json = False,
) -> None:
    """Convert a strategy file between protocol buffer and JSON.

    Example: isthmus checkpoint strategy convert ckpt_strategy_rank_0.ckpt strategy.json
    """
    from isthmus_formats.checkpoint import strategy as strategies

    with exit_on(CheckpointError):
        found = strategies.read(file)
        strategies.write(target, found)
    _report_written(target, len(found.items), as_json)


@strategy.command("merge")
def merge_strategy(
    folder: Annotated[Path, typer.Argument(help="Folder with the strategy files of the ranks.")],
    target: Annotated[Path, typer.Argument(help="File to write: .json, else protocol buffer.")],
    as_json: Json = False,
) -> None:
    """Merge the strategy files of pipeline stages into one.

    Example: isthmus checkpoint strategy merge output/strategy/ merged.ckpt
    """
    from isthmus_formats.checkpoint import strategy as strategies

    with exit_on(CheckpointError):
        found = strategies.merge([path for path in strategies.files(folder) if path != target])
        strategies.write(target, found)
    _report_written(target, len(found.items), as_json)


def _report_written(target: Path, parameters: int, as_json: bool) -> None:
    summary = {"file": str(target), "parameters": parameters}
    print(json.dumps(summary, indent=2) if as_json else f"{target}: {parameters} parameters")
