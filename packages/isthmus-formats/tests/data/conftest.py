"""Small tokenizers and data sets."""

import json
import random
from pathlib import Path

import pytest

from isthmus_formats.data import forms
from isthmus_formats.data.records import Record, Turn
from isthmus_formats.data.run import Input
from isthmus_formats.data.train import train

WORDS = "the of data model train chip layer token héllo 世界 gradient loss rank 🙂 a".split()


def rows(count: int) -> list[dict[str, str]]:
    """Return Alpaca rows, the same ones each time."""
    choose = random.Random(0)

    def text(most: int) -> str:
        return " ".join(choose.choices(WORDS, k=choose.randint(1, most)))

    return [
        {"instruction": text(8), "input": "" if index % 3 else text(5), "output": text(30)}
        for index in range(count)
    ]


def conversation(*texts: str) -> Record:
    """Return a conversation of user and assistant in turn."""
    return Record("", tuple(Turn("assistant" if i % 2 else "user", text) for i, text in enumerate(texts)))


@pytest.fixture(scope="session")
def alpaca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An Alpaca file of 300 rows, laid out as the original one is."""
    path = tmp_path_factory.mktemp("alpaca") / "alpaca.json"
    path.write_text(json.dumps(rows(300), indent=4, ensure_ascii=False))
    return path


@pytest.fixture(scope="session")
def bpe(alpaca: Path) -> Path:
    """A byte-level BPE tokenizer."""
    folder = alpaca.parent / "bpe"
    train(Input((alpaca,)), folder, "bpe", 400, ["<|im_start|>", "<|im_end|>"], "")
    return folder


@pytest.fixture(scope="session")
def pieces(alpaca: Path) -> Path:
    """A SentencePiece tokenizer."""
    folder = alpaca.parent / "sentencepiece"
    train(Input((alpaca,)), folder, "sentencepiece", 400, [], "")
    return folder


def encoded(record: Record, form: str) -> dict:
    return forms.FORMS[form].write(record, 0)
