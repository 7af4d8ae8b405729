"""Tokens of C++ and CUDA sources: comments are left out, text in strings stays text.

It is no parser: macros are not expanded and templates not instantiated. What analysis asks of a source (which kernels
it defines and launches, which operators it binds to Python) needs tokens and balanced brackets only.
"""

import enum
import re
from collections.abc import Iterator
from typing import NamedTuple


class Of(enum.Enum):
    """What a token is."""

    NAME = "name"
    STRING = "string"  # its text is what is between the quotes
    NUMBER = "number"
    INCLUDE = "include"  # its text is the header's name
    DEFINE = "define"  # its text is the macro's name and all behind it
    SIGN = "sign"


class Token(NamedTuple):
    """One token; lines count from 1 on."""

    of: Of
    text: str
    line: int


# What opens matches to the end of the line or text if nothing closes it: else a search per quote, quadratic.
_TOKEN = re.compile(
    r"""
      (?P<comment>//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z))
    | \#[ \t]*include[ \t]*[<"](?P<include>[^>"\n]*)[>"]
    | \#[ \t]*define[ \t]+(?P<define>\w(?:\\\r?\n|[^\n])*)
    | (?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\((?P<raw>.*?)(?:\)(?P=mark)"|\Z)
    | (?:u8|[uUL])?"(?P<string>(?:[^"\\\n]|\\.)*+)(?:"|\n|\\?\Z)
    | '(?P<character>(?:[^'\\\n]|\\.)*+)(?:'|\n|\\?\Z)
    | (?P<name>[A-Za-z_$][\w$]*)
    | (?P<number>\.?\d(?:[eEpP][+-]|[\w.']|)*)
    | (?P<sign><<<|>>>|::|->|\S)
    """,
    re.VERBOSE | re.DOTALL,
)
_OF = {
    "include": Of.INCLUDE,
    "define": Of.DEFINE,
    "raw": Of.STRING,
    "string": Of.STRING,
    "character": Of.STRING,
    "name": Of.NAME,
    "number": Of.NUMBER,
    "sign": Of.SIGN,
}
_OPEN = frozenset("([{")
_CLOSE = frozenset(")]}")


class Stream(list[Token]):
    """The tokens of a source in their order; whatever bytes it holds, nothing is raised.

    Args:
        text: the source, or a part of it.
        line: on which it begins.
    """

    def __init__(self, text: str, line: int = 1) -> None:
        super().__init__(_tokens(text, line))
        self._closing = _pairs(self)

    def closing(self, opening: int) -> int:
        """Index of the bracket that closes the one at an index; the number of tokens if none does."""
        return self._closing.get(opening, len(self))

    def arguments(self, opening: int) -> list[list[Token]]:
        """What commas part between a round bracket at an index and the one that closes it.

        Commas within any bracket do not part, nor do those of template arguments (``f<a, b>(x)``).
        """
        parts: list[list[Token]] = [[]]
        depth = 0
        for token in self[opening + 1 : self.closing(opening)]:
            if token.of is Of.SIGN:
                depth += (token.text in _OPEN) - (token.text in _CLOSE)
                depth += (token.text == "<") - (token.text == ">" and depth > 0)
                if token.text == "," and depth == 0:
                    parts.append([])
                    continue
            parts[-1].append(token)
        return [] if parts == [[]] else parts


def _tokens(text: str, line: int) -> Iterator[Token]:
    counted = 0
    for match in _TOKEN.finditer(text):
        group = match.lastgroup or ""
        if group != "comment":
            line += text.count("\n", counted, match.start())
            counted = match.start()
            yield Token(_OF[group], match[group], line)


def _pairs(stream: list[Token]) -> dict[int, int]:
    """Index of every bracket that opens -> that of the one that closes it."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for index, (of, text, _) in enumerate(stream):
        if of is Of.SIGN and text in _OPEN:
            opened.append(index)
        elif of is Of.SIGN and text in _CLOSE and opened:
            pairs[opened.pop()] = index
    return pairs
