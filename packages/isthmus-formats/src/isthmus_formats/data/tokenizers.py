"""Tokenizers: Hugging Face's ``tokenizer.json`` and SentencePiece's ``tokenizer.model``, with offsets."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from isthmus_formats.data.records import DataError, kind_of


class Encoding(NamedTuple):
    """Tokens of a text.

    Attributes:
        ids: token numbers.
        place: returns the first character of a token, by its index, and the one after its last.
    """

    ids: list[int]
    place: Callable[[int], Any]


class Backend(Protocol):
    """The interface of the two libraries."""

    size: int
    specials: dict[str, int]

    def encode(self, texts: Sequence[str], places: bool) -> list[Encoding]:
        """Return the tokens of texts; special tokens are those that stand in them, none is added.

        Args:
            texts: texts.
            places: whether the places of tokens are needed.
        """

    def has(self, number: int) -> bool:
        """Return whether a number is that of a token."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, also of special ones, all of which it has."""


class Tokenizer:
    """A tokenizer with its settings.

    Args:
        path: a folder, ``tokenizer.json`` or ``tokenizer.model``.

    Attributes:
        special: texts of special tokens by name: ``bos_token``, ``eos_token``, ``pad_token`` and so on.
        chat_template: Jinja, if it has one.

    Raises:
        DataError: there is none, or it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise DataError(f"{path}: no such file or directory; give a tokenizer's file or folder")
        folder = path if path.is_dir() else path.parent
        if path.is_dir():
            found = [path / name for name in ("tokenizer.json", "tokenizer.model") if (path / name).exists()]
            if not found:
                raise DataError(f"{path}: no tokenizer.json and no tokenizer.model in this folder")
            path = found[0]
        settings = _settings(folder)
        self.backend: Backend = _HuggingFace(path) if path.suffix == ".json" else _SentencePiece(path)
        self.special = {**getattr(self.backend, "defaults", {}), **_special_tokens(folder, settings)}
        self.chat_template = _chat_template(folder, settings)

    def id_of(self, *names: str) -> int | None:
        """Return the number of the first of these special tokens that the tokenizer has."""
        texts = [self.special[name] for name in names if name in self.special]
        return next((self.backend.specials[text] for text in texts if text in self.backend.specials), None)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, also of special ones.

        Raises:
            DataError: the tokenizer does not have one of them.
        """
        unknown = next((number for number in ids if not self.backend.has(number)), None)
        if unknown is not None:
            raise DataError(f"token {unknown} is not in the tokenizer, which has {self.backend.size}")
        return self.backend.decode(ids)


@cache
def load(path: Path) -> Tokenizer:
    """Return a tokenizer, read once in a process."""
    return Tokenizer(path)


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    if not path.exists():
        return {}
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    if not isinstance(settings, dict):
        raise DataError(f"{path}: {kind_of(settings)} instead of an object")
    return settings


def _special_tokens(folder: Path, settings: dict[str, Any]) -> dict[str, str]:
    """Return the texts of special tokens by name."""
    found = dict[str, str]()
    for key, value in settings.items():
        if not key.endswith("_token") or not value or value is True:  # a flag, such as add_bos_token
            continue
        text = value.get("content") if isinstance(value, dict) else value
        if not isinstance(text, str):
            raise DataError(f"{folder / 'tokenizer_config.json'}: {key} is not a text")
        found[key] = text
    return found


def _chat_template(folder: Path, settings: dict[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.exists():
        try:
            return path.read_text(encoding="utf-8")
        except ValueError as error:
            raise DataError(f"{path}: cannot be read: {error}") from None
    template = settings.get("chat_template")
    if isinstance(template, list):  # several, by name
        named = [each for each in template if isinstance(each, dict) and each.get("name") == "default"]
        template = named[0].get("template") if named else None
    if template is not None and not isinstance(template, str):
        raise DataError(
            f"{folder / 'tokenizer_config.json'}: chat_template is {kind_of(template)}, not a text"
        )
    return template


class _HuggingFace:
    def __init__(self, path: Path) -> None:
        try:
            from tokenizers import Tokenizer as Fast

            self._tokenizer = Fast.from_file(str(path))
        except ModuleNotFoundError as error:
            raise DataError(f"{path}: {error}; pip install 'isthmus-formats[data]'") from None
        except Exception as error:  # the library raises no narrower type
            raise DataError(f"{path}: not a tokenizer: {error}") from None
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.size: int = self._tokenizer.get_vocab_size()
        self.specials = {
            token.content: number
            for number, token in self._tokenizer.get_added_tokens_decoder().items()
            if token.special
        }

    def encode(self, texts: Sequence[str], places: bool) -> list[Encoding]:
        encode = self._tokenizer.encode_batch if places else self._tokenizer.encode_batch_fast
        found = encode(list(texts), add_special_tokens=False)
        return [
            Encoding(each.ids, each.token_to_chars) for each in found
        ]  # a list of all places takes longer

    def has(self, number: int) -> bool:
        return number >= 0 and self._tokenizer.id_to_token(number) is not None

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)


class _SentencePiece:
    def __init__(self, path: Path) -> None:
        try:
            from sentencepiece import SentencePieceProcessor

            self._processor = SentencePieceProcessor(model_file=str(path))
        except ModuleNotFoundError as error:
            raise DataError(f"{path}: {error}; pip install 'isthmus-formats[data]'") from None
        except (OSError, RuntimeError) as error:
            raise DataError(f"{path}: not a SentencePiece model: {error}") from None
        model = self._processor
        self.size: int = model.vocab_size()
        self.specials = {
            model.id_to_piece(i): i for i in range(self.size) if model.is_control(i) or model.is_unknown(i)
        }
        numbers = {"bos_token": model.bos_id(), "eos_token": model.eos_id(), "pad_token": model.pad_id()}
        self.defaults = {name: model.id_to_piece(i) for name, i in numbers.items() if i >= 0}
        # SentencePiece reads no such token in a text, so texts are cut at them.
        self._cut = re.compile(f"({'|'.join(map(re.escape, self.specials))})") if self.specials else None

    def encode(self, texts: Sequence[str], places: bool) -> list[Encoding]:
        parts = [self._cut.split(text) if self._cut else [text] for text in texts]
        plain = [part for each in parts for part in each[::2]]
        encoded = iter(self._processor.encode(plain, return_type="offset_mapping", num_threads=1))
        return [self._join_parts(each, encoded) for each in parts]

    def _join_parts(self, parts: list[str], encoded: Iterator[Any]) -> Encoding:
        ids, offsets, start = list[int](), list[tuple[int, int]](), 0
        for index, part in enumerate(parts):
            if index % 2:
                ids.append(self.specials[part])
                offsets.append((start, start + len(part)))
            else:
                found = next(encoded)
                ids += found["ids"]
                offsets += [(start + begin, start + end) for begin, end in found["offsets"]]
            start += len(part)
        return Encoding(ids, offsets.__getitem__)

    def has(self, number: int) -> bool:
        return 0 <= number < self.size

    def decode(self, ids: Sequence[int]) -> str:
        names = {number: name for name, number in self.specials.items()}
        runs = itertools.groupby(ids, key=names.get)
        return "".join(
            name * len(list(run)) if name else self._processor.decode(list(run)) for name, run in runs
        )
