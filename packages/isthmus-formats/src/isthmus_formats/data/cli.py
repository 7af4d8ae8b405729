"""``isthmus data``: data sets between frameworks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from isthmus_common.exits import exit_on, fail
from isthmus_formats.data.records import DataError

app = typer.Typer(
    help="Convert data sets, tokenize them for any framework, and look into the files.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Files = Annotated[
    list[Path],
    typer.Argument(
        help="Files: .json (an array or lines), .jsonl, .parquet, .txt, .arrow, or a folder of .arrow files.",
        show_default=False,
    ),
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        help="Form of the rows: alpaca, alpaca-mindformers, alpaca-fastchat, sharegpt, messages or text; "
        "by default told from the first row.",
        show_default=False,
    ),
]
TextField = Annotated[str, typer.Option(help="Field of plain text.")]
SkipInvalid = Annotated[bool, typer.Option(help="List invalid rows in OUTPUT.issues.jsonl and continue.")]
Workers = Annotated[int, typer.Option(min=0, help="Processes; 0 for one on each core.")]
DryRun = Annotated[bool, typer.Option(help="Write nothing; print the statistics.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _input(paths: list[Path], form: str, text_field: str, skip_invalid: bool) -> Any:
    from isthmus_formats.data.forms import FORMS
    from isthmus_formats.data.run import Input

    if form and form not in FORMS:
        raise fail(f"--from {form}: unknown form; expected {', '.join(FORMS)}", 2)
    return Input(tuple(paths), form, text_field, skip_invalid)


def _processes(workers: int) -> int:
    from isthmus_formats.data.parallel import available_cores

    return workers or available_cores()


def _report(facts: dict[str, Any], as_json: bool) -> None:
    """Print statistics."""
    from isthmus_common.tables import print_table

    if as_json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    rows = [[key, _figure(value)] for key, value in facts.items() if key != "files"]
    for name, inner in facts.get("files", {}).items():
        rows += [[f"{name}: {key}", _figure(value)] for key, value in inner.items()]
    print_table(["", ""], rows, piped_head=False)


def _figure(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


@app.command()
def convert(
    files: Files,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write: .json, .jsonl, .parquet or .txt.")
    ],
    from_: From = "",
    to: Annotated[
        str, typer.Option(help="Form to write; by default sharegpt, and text from text.", show_default=False)
    ] = "",
    text_field: TextField = "text",
    skip_invalid: SkipInvalid = False,
    workers: Workers = 0,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Convert records from one form and file format to another.

    Example: isthmus data convert alpaca_data.json --from alpaca-mindformers -o conversations.json
    """
    from isthmus_formats.data.convert import convert as run
    from isthmus_formats.data.forms import FORMS

    if to and to not in FORMS:
        raise fail(f"--to {to}: unknown form; expected {', '.join(FORMS)}", 2)
    with exit_on(DataError):
        given = _input(files, from_, text_field, skip_invalid)
        _report(run(given, output, to, _processes(workers), dry_run), as_json)


@app.command()
def tokenize(
    files: Files,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="File to write: .mindrecord, .safetensors, .parquet, .jsonl, or a prefix of Megatron's.",
        ),
    ],
    tokenizer: Annotated[Path, typer.Option(help="Folder, tokenizer.json or tokenizer.model.")],
    template: Annotated[
        str,
        typer.Option(
            help="alpaca, vicuna, llama-2, llama-3, chatml or a Jinja file; by default the tokenizer's template.",
            show_default=False,
        ),
    ] = "",
    to: Annotated[
        str,
        typer.Option(
            help="megatron, mindrecord, safetensors, parquet or jsonl; by default told from the suffix.",
            show_default=False,
        ),
    ] = "",
    from_: From = "",
    text_field: TextField = "text",
    seq_length: Annotated[
        int, typer.Option(min=0, help="Tokens of a sample at most; longer records are cut, and listed.")
    ] = 0,
    pack: Annotated[
        str,
        typer.Option(
            help="records: as many whole records in a sample as fit; stream: cut records where a sample is full, "
            "and drop the last sample if it is short.",
            show_default=False,
        ),
    ] = "",
    pad: Annotated[
        bool, typer.Option(help="Pad samples to --seq-length, also the last one of a stream.")
    ] = False,
    prepend_bos: Annotated[bool, typer.Option(help="Begin each plain text with the bos token.")] = False,
    append_eos: Annotated[bool, typer.Option(help="End each plain text with the eos token.")] = False,
    shuffle: Annotated[
        int | None, typer.Option(min=0, help="Shuffle the records with this seed.", show_default=False)
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Repeat the records, each time shuffled anew.")] = 1,
    validation: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Share of records for OUTPUT-validation, chosen by a hash of their texts."
        ),
    ] = 0.0,
    skip_invalid: SkipInvalid = False,
    workers: Workers = 0,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Render, tokenize, mask and pack records.

    Example: isthmus data tokenize conversations.json --tokenizer llama/ --template vicuna --seq-length 1024
    --pack records -o corpus.mindrecord
    """
    from isthmus_formats.data.formats import FORMATS
    from isthmus_formats.data.packing import Layout
    from isthmus_formats.data.tokenize import Tokenization
    from isthmus_formats.data.tokenize import tokenize as run

    if to and to not in FORMATS:
        raise fail(f"--to {to}: unknown format; expected {', '.join(FORMATS)}", 2)
    if pack not in ("", "records", "stream"):
        raise fail(f"--pack {pack}: expected records or stream", 2)
    with exit_on(DataError):
        task = Tokenization(
            _input(files, from_, text_field, skip_invalid),
            tokenizer.absolute(),
            template,
            append_eos,
            prepend_bos,
        )
        facts = run(
            task,
            output,
            Layout(seq_length, pack, None, shuffle, repeat),
            format=to,
            padded=pad,
            validation=validation,
            workers=_processes(workers),
            dry_run=dry_run,
        )
        _report(facts, as_json)


@app.command("train-tokenizer")
def train_tokenizer(
    files: Files,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")],
    kind: Annotated[
        str, typer.Option(help="bpe (tokenizer.json) or sentencepiece (tokenizer.model).")
    ] = "bpe",
    vocab_size: Annotated[int, typer.Option(min=300, help="Number of tokens at most.")] = 32000,
    special: Annotated[
        list[str] | None,
        typer.Option(help="A special token besides <unk>, <s> and </s>.", show_default=False),
    ] = None,
    template: Annotated[
        str, typer.Option(help="Built-in chat template to store with it.", show_default=False)
    ] = "",
    from_: From = "",
    text_field: TextField = "text",
    skip_invalid: SkipInvalid = False,
    as_json: Json = False,
) -> None:
    """Train a small tokenizer from the texts of a data set.

    Example: isthmus data train-tokenizer alpaca_data.json --vocab-size 4000 -o tokenizer
    """
    from isthmus_formats.data.templates import BUILT_IN
    from isthmus_formats.data.train import train

    if kind not in ("bpe", "sentencepiece"):
        raise fail(f"--kind {kind}: expected bpe or sentencepiece", 2)
    if template and template not in BUILT_IN:
        raise fail(f"--template {template}: expected {', '.join(BUILT_IN)}", 2)
    with exit_on(DataError):
        given = _input(files, from_, text_field, skip_invalid)
        _report(train(given, output, kind, vocab_size, special or [], BUILT_IN.get(template, "")), as_json)


@app.command()
def inspect(
    file: Annotated[
        Path, typer.Argument(help="File of samples or records; a prefix for Megatron's.", show_default=False)
    ],
    tokenizer: Annotated[Path | None, typer.Option(help="Decode tokens with it.", show_default=False)] = None,
    template: Annotated[
        str, typer.Option(help="Chat template to render records with.", show_default=False)
    ] = "",
    samples: Annotated[int, typer.Option("--samples", "-n", min=0, help="Samples to print.")] = 1,
    from_: From = "",
    text_field: TextField = "text",
    skip_invalid: SkipInvalid = False,
    as_json: Json = False,
) -> None:
    """Print what a file holds; trained text is green on a terminal, else between ⟦ and ⟧.

    Example: isthmus data inspect corpus.mindrecord --tokenizer llama/ -n 3
    """
    from rich.console import Console
    from rich.text import Text

    from isthmus_formats.data.inspect import inspect as run

    with exit_on(DataError):
        facts, shown = run(_input([file], from_, text_field, skip_invalid), samples, tokenizer, template)
    if as_json:
        rows = [{"title": each.title, "parts": [part._asdict() for part in each.parts]} for each in shown]
        _report({**facts, "shown": rows}, True)
        return
    _report(facts, False)
    console = Console(soft_wrap=True)
    for each in shown:
        console.print(Text(f"--- {each.title}"))
        for part in each.parts:
            plain = f"⟦{part.text}⟧" if part.trained and not console.is_terminal else part.text
            console.print(Text(plain, "green" if part.trained else ""), end="")
        console.print()
