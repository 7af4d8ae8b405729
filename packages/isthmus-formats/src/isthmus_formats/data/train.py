"""``isthmus data train-tokenizer``: a byte-level BPE or a SentencePiece model from the texts of a data set."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from isthmus_common.files import make_folder, write_file
from isthmus_common.progress import say
from isthmus_common.text import count
from isthmus_formats.data import run, sources
from isthmus_formats.data.records import DataError
from isthmus_formats.data.work import refuse_existing

SPECIAL = ("<unk>", "<s>", "</s>")


def texts(given: run.Input, result: run.Result) -> Iterator[str]:
    """Yield the texts of all records."""
    for chunk in sources.chunks(given.paths):
        for _, record in given.records(chunk, result):
            yield from [turn.text for turn in record.turns] or [record.text]


def train(
    given: run.Input, output: Path, kind: str, size: int, special: Sequence[str], template: str
) -> dict[str, Any]:
    """Train a tokenizer; return statistics.

    Args:
        given: the input.
        output: folder to write; it is created.
        kind: ``bpe`` for tokenizer.json, ``sentencepiece`` for tokenizer.model.
        size: number of tokens at most.
        special: special tokens besides <unk>, <s> and </s>.
        template: Jinja to store as its chat template, or "".

    Raises:
        DataError: the input is invalid or too small, or the folder cannot be written.
    """
    refuse_existing([output])
    given, result = given.resolve(), run.Result()
    data = filter(None, texts(given, result))
    if not (first := next(data, "")):
        raise DataError(
            f"{', '.join(map(str, given.paths))}: no text in {count(result.counts['rows'], 'row')}"
        )
    name, content = ("tokenizer.json", _bpe) if kind == "bpe" else ("tokenizer.model", _sentencepiece)
    model, found = content(itertools.chain([first], data), size, special)
    settings = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>", "unk_token": "<unk>"}
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast"} if kind == "bpe" else {}
    settings |= {"chat_template": template} if template else {}
    if found < size:
        say(f"{output}: {count(found, 'token')} instead of {size}: the data has no more; give more data")
    try:
        make_folder(output)
        write_file(output / "tokenizer_config.json", json.dumps(settings, indent=2).encode())
        write_file(output / name, model)
    except OSError as error:
        raise DataError(f"{error.filename or output}: {error.strerror}") from None
    return {"output": str(output / name), "vocabulary": found, **result.counts}


def _bpe(data: Iterator[str], size: int, special: Sequence[str]) -> tuple[bytes, int]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[*SPECIAL, *special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(data, trainer)
    return tokenizer.to_str().encode(), tokenizer.get_vocab_size()


def _sentencepiece(data: Iterator[str], size: int, special: Sequence[str]) -> tuple[bytes, int]:
    from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=data,
            model_writer=model,
            model_type="bpe",
            vocab_size=size,
            byte_fallback=True,
            hard_vocab_limit=False,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            control_symbols=list(special),
            minloglevel=2,
        )
    except RuntimeError as error:
        raise DataError(f"SentencePiece refuses the data: {error}") from None
    return model.getvalue(), SentencePieceProcessor(model_proto=model.getvalue()).vocab_size()
