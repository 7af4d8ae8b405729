"""Text for a language model: reading it, cutting it into tokens, serving it in windows.

Every fault of the user's data is a CorpusError whose message is one line: file, line, remedy.
"""

from __future__ import annotations

import hashlib
import json
import pydoc_data.topics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.utils.data import Dataset

from pretraining.files import replacing

END_OF_TEXT = "<|endoftext|>"
SMALLEST_VOCABULARY = len(pre_tokenizers.ByteLevel.alphabet()) + 1


class CorpusError(ValueError):
    """The text or tokenizer cannot be used; the message is one line with the remedy."""


# ---- Reading -------------------------------------------------------------------------------------------


def read_documents(path: Path | None) -> list[str]:
    """The non-empty documents of a .txt, .jsonl or .json file; of the Python language reference for None.

    A .txt file is one document. A .jsonl file has one record to a line, a .json file a list of records; a
    record is {"text": ...} or Alpaca's {"instruction": ..., "input": ..., "output": ...}, input optional.

    Raises:
        CorpusError: the file cannot be read, is not UTF-8, is malformed or holds no text.
    """
    if path is None:
        return list(pydoc_data.topics.topics.values())
    readers: dict[str, Callable[[Path, str], Iterator[str]]] = {
        ".txt": lambda _, text: iter([text]), ".jsonl": _read_jsonl, ".json": _read_json
    }  # fmt: skip
    if path.suffix.lower() not in readers:
        raise CorpusError(f"{path}: unknown kind of file {path.suffix!r}; pass a .txt, .jsonl or .json file")
    documents = [text for text in readers[path.suffix.lower()](path, _read_text(path)) if text.strip()]
    if not documents:
        raise CorpusError(f"{path}: line 1: the file has no text; pass a file with text")
    return documents


def _read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}); check the path and its mode") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CorpusError(
            f"{path}: line {line}: byte 0x{data[error.start]:02x} is not UTF-8; "
            "convert the file, e.g. with iconv -t UTF-8"
        ) from None


def _read_jsonl(path: Path, text: str) -> Iterator[str]:
    # Not splitlines(): it also breaks at characters such as U+2028, which JSON strings may hold.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise CorpusError(
                    f"{path}: line {number}: not JSON ({getattr(error, 'msg', error)}); "
                    "write one JSON object to a line, or name a list of records .json"
                ) from None
            yield _record_text(record, f"{path}: line {number}")


def _read_json(path: Path, text: str) -> Iterator[str]:
    """The records of a JSON list, decoded one by one so that errors have line numbers."""
    decoder = json.JSONDecoder()
    line, counted, position = 1, 0, _skip_space(text, 0)
    if text[position : position + 1] != "[":
        start = text.count("\n", 0, position) + 1
        raise CorpusError(f"{path}: line {start}: expected a list of records, [{{...}}, ...]; wrap it in one")
    position = _skip_space(text, position + 1)
    while text[position : position + 1] != "]":
        line, counted = line + text.count("\n", counted, position), position
        try:
            record, position = decoder.raw_decode(text, position)
            text_of_record = _record_text(record, f"{path}: line {line}")
            position = _skip_space(text, position)
            if text[position : position + 1] == ",":
                position = _skip_space(text, position + 1)
            elif text[position : position + 1] != "]":
                raise json.JSONDecodeError("Expecting ',' or ']'", text, position)
        except (json.JSONDecodeError, RecursionError) as error:
            where = getattr(error, "lineno", line)
            reason = getattr(error, "msg", error)
            raise CorpusError(f"{path}: line {where}: not JSON ({reason}); correct that line") from None
        yield text_of_record


def _skip_space(text: str, position: int) -> int:
    while text[position : position + 1] in (" ", "\t", "\n", "\r"):
        position += 1
    return position


def _record_text(record: Any, where: str) -> str:
    if not isinstance(record, dict):
        raise CorpusError(f"{where}: expected an object, found {type(record).__name__}; {_REMEDY}")
    if "text" in record:
        parts = [("", "text")]
    elif "instruction" in record and "output" in record:
        parts = [("### Instruction:\n", "instruction"), ("### Response:\n", "output")]
        if record.get("input"):
            parts.insert(1, ("### Input:\n", "input"))
    else:  # report a value that is not text first
        parts = [("", key) for key in ("instruction", "output") if not isinstance(record.get(key, ""), str)]
    if not parts:
        raise CorpusError(f"{where}: no text under the keys {sorted(record)}; {_REMEDY}")
    for _, key in parts:
        if not isinstance(record[key], str):
            found = type(record[key]).__name__
            raise CorpusError(f"{where}: {key!r} is of type {found}, not a string; put the text in quotes")
    text = "\n\n".join(heading + record[key] for heading, key in parts)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise CorpusError(
            f"{where}: half of a surrogate pair (\\ud800 to \\udfff); write the whole character"
        )
    return text


_REMEDY = 'give {"text": ...} or {"instruction": ..., "input": ..., "output": ...}'


# ---- Tokens --------------------------------------------------------------------------------------------


def fingerprint(documents: list[str]) -> str:
    """Eight hexadecimal digits that change when the text does."""
    digest = hashlib.sha256()
    for document in documents:
        digest.update(document.encode() + b"\0")
    return digest.hexdigest()[:8]


def load_or_train_tokenizer(documents: list[str], vocab_size: int, folder: Path) -> Tokenizer:
    """A byte-level BPE tokenizer of at most vocab_size tokens, cached in folder by text."""
    path = folder / f"tokenizer-{fingerprint(documents)}-{vocab_size}.json"
    if not path.exists():
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[END_OF_TEXT],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(documents, trainer)
        with replacing(path) as temporary:
            tokenizer.save(str(temporary))
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises plain Exception
        raise CorpusError(f"{path}: not a tokenizer ({error}); delete the file to recreate it") from None


def encode(tokenizer: Tokenizer, documents: list[str]) -> torch.Tensor:
    """All documents as one sequence of token ids, int64 of shape (tokens,), each ended by END_OF_TEXT."""
    end = tokenizer.encode(END_OF_TEXT).ids
    ids: list[int] = []
    for encoding in tokenizer.encode_batch(documents):
        ids += encoding.ids + end
    return torch.tensor(ids, dtype=torch.int64)


class Windows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Consecutive windows of a token sequence; item i is (inputs, targets), each int64 of (seq_length,)."""

    def __init__(self, tokens: torch.Tensor, seq_length: int) -> None:
        self.tokens, self.seq_length = tokens, seq_length

    def __len__(self) -> int:
        return max(0, len(self.tokens) - 1) // self.seq_length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = index * self.seq_length
        window = self.tokens[start : start + self.seq_length + 1]
        return window[:-1], window[1:]


def split_windows(
    tokens: torch.Tensor, seq_length: int, eval_fraction: float, name: str
) -> tuple[Windows, Windows]:
    """Windows for training and, from the end of the sequence, for evaluation.

    Raises:
        CorpusError: either would be empty. `name` is what the message calls the text.
    """
    boundary = len(tokens) - int(len(tokens) * eval_fraction)
    train, held_out = Windows(tokens[:boundary], seq_length), Windows(tokens[boundary:], seq_length)
    if not len(train) or (eval_fraction and not len(held_out)):
        part = "train" if not len(train) else "evaluate"
        raise CorpusError(
            f"{name}: {len(tokens)} tokens are too few to {part} on at sequence length {seq_length} "
            f"with {eval_fraction:.0%} held out; pass more text, or lower --seq-length or --eval-fraction"
        )
    return train, held_out
