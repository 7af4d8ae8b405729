"""Tokenizer of C++ and CUDA sources, without comments.

Macros are not expanded and templates not instantiated: finding kernels, launches and bindings needs only tokens and
balanced brackets.
"""

import enum
import re
from collections.abc import Iterator
from typing import NamedTuple


class TokenKind(enum.Enum):
    """Kind of a token."""

    NAME = "name"
    STRING = "string"  # text: the content of the quotes
    NUMBER = "number"
    INCLUDE = "include"  # text: the header's name
    DEFINE = "define"  # text: the macro's name and definition
    SIGN = "sign"


class Token(NamedTuple):
    """A token; lines count from 1."""

    of: TokenKind
    text: str
    line: int


# Unclosed quotes match to the end of the line or text; a search per quote would be quadratic.
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
    "include": TokenKind.INCLUDE,
    "define": TokenKind.DEFINE,
    "raw": TokenKind.STRING,
    "string": TokenKind.STRING,
    "character": TokenKind.STRING,
    "name": TokenKind.NAME,
    "number": TokenKind.NUMBER,
    "sign": TokenKind.SIGN,
}
_OPEN = frozenset("([{")
_CLOSE = frozenset(")]}")


class Stream(list[Token]):
    """The tokens of a source, in order. Invalid input raises nothing.

    Args:
        text: the source, or a part of it.
        line: number of its first line.
    """

    def __init__(self, text: str, line: int = 1) -> None:
        super().__init__(_tokens(text, line))
        self._closing = _pairs(self)

    def find_closing(self, opening: int) -> int:
        """Return the index of the matching closing bracket; the number of tokens if there is none."""
        return self._closing.get(opening, len(self))

    def arguments(self, opening: int) -> list[list[Token]]:
        """Split the arguments in the parentheses at an index.

        Commas in nested brackets and in template arguments (``f<a, b>(x)``) do not split.
        """
        parts: list[list[Token]] = [[]]
        depth = 0
        for token in self[opening + 1 : self.find_closing(opening)]:
            if token.of is TokenKind.SIGN:
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
    """Return the index of the closing bracket by that of the opening one."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for index, (of, text, _) in enumerate(stream):
        if of is TokenKind.SIGN and text in _OPEN:
            opened.append(index)
        elif of is TokenKind.SIGN and text in _CLOSE and opened:
            pairs[opened.pop()] = index
    return pairs
