"""Phrases of messages that say whether there is a CUDA device, and the same for any accelerator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

_START = r"(?:(?<![\w.\-])|(?<=\\[nrt]))"
_CUDA = rf"{_START}CUDA"
_WORD = re.compile(rf"{_CUDA}(?!\w|[.=]\w|\()", re.IGNORECASE)
# Text that may stand before a clause whose subject is CUDA.
_BEFORE = re.compile(
    r"""(?:^|["'.,:;!?()\[\]\-]\s*|\\[nrt]\s*|\b(?:and|as|because|but|if|or|since|that|unless|when|where|while)\s)$"""
)
_SENTENCE = re.compile(r"""(?:^\w*["']+|[.!?]\s|\\[nrt])\s*$""")


class Phrase(NamedTuple):
    """A phrase, and what replaces it.

    Attributes:
        start: offset of its first character.
        end: offset after its last character.
        text: what replaces it.
        denies: whether it says that there is no device.
    """

    start: int
    end: int
    text: str
    denies: bool


def names_cuda(text: str) -> int:
    """Return how often a text names CUDA as a word, not as a part of code or of an option."""
    return len(_WORD.findall(text))


def neutral_phrases(code: str) -> Iterator[Phrase]:
    """Yield the phrases of a string's source that can be said of any accelerator, in the order of the text."""
    found: dict[int, Phrase] = {}
    for pattern, write in _FORMS:
        for match in pattern.finditer(code):
            is_clause = match.re.groupindex.get("be") is not None
            if is_clause and not _BEFORE.search(code[: match.start()]):
                continue
            if any(each.start < match.end() and match.start() < each.end for each in found.values()):
                continue
            text = write(match)
            if match[0][0].isupper() and _SENTENCE.search(code[: match.start()]):
                text = text[0].upper() + text[1:]
            found[match.start()] = Phrase(*match.span(), text, text.lower().startswith("no "))
    yield from (found[start] for start in sorted(found))


def _form(pattern: str, write: Callable[[re.Match[str]], str]) -> tuple[re.Pattern[str], Callable[..., str]]:
    return re.compile(pattern, re.IGNORECASE), write


_FORMS = (
    # "a CUDA device", "no CUDA-capable GPUs"
    _form(
        rf"(?P<article>\b(?:a|no) |){_CUDA}(?:[- ](?:capable|compatible|enabled))?"
        r"[- ](?:device|GPU)(?P<plural>s?)(?![\w\-])",
        lambda each: (
            {"a ": "an ", "no ": "no "}.get(each["article"].lower(), "") + f"accelerator{each['plural']}"
        ),
    ),
    # "no CUDA available"
    _form(rf"\bno {_CUDA}(?= (?:available|detected|found)\b)", lambda _: "no accelerator"),
    # "CUDA is not available", "CUDA unavailable"
    _form(
        rf"{_CUDA} (?P<be>is |was |)(?:not |(?=unavailable))(?:un)?(?P<what>available|detected|found)\b",
        lambda each: f"no accelerator {each['be']}{each['what']}",
    ),
    # "CUDA is available", "CUDA required"
    _form(
        rf"{_CUDA} (?P<be>is |was |)(?P<what>available|detected|found|needed|required)\b",
        lambda each: f"{'an ' if each['be'] else ''}accelerator {each['be']}{each['what']}",
    ),
    # "requires CUDA", at the end of a clause
    _form(
        rf"\b(?P<verb>needs?|requires?|requiring|without) {_CUDA}"
        r"""(?=\s*(?:[.,;:!?)"'\\]|$)|\s(?:and|but|for|or|to)\b)""",
        lambda each: f"{each['verb']} an accelerator",
    ),
)
