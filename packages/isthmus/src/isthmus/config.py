"""Every option of the installed packages with its current value, checked: what ``isthmus env`` lists."""

import os
from typing import NamedTuple

from isthmus_common.options import PREFIX, parse, tables
from isthmus_common.options import Option as Declared


class Option(NamedTuple):
    """One option, as shown to users.

    Attributes:
        variable: name of the environment variable.
        value: its current value, as text; the default where it is not set.
        default: as text.
        is_set: whether the environment sets it.
        reader: who reads it.
        meaning: one line.
        problem: what is wrong with the value, or "".
    """

    variable: str
    value: str
    default: str
    is_set: bool
    reader: str
    meaning: str
    problem: str


def options() -> list[Option]:
    """All options in the order of their declaration, those of isthmus first."""
    return [_describe(option) for table in tables() for option in table.options]


def unknown_variables() -> list[str]:
    """Variables that begin with ISTHMUS_ and name no option: a misspelling, most likely."""
    known = {option.variable for option in options()}
    return sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)


def _describe(option: Declared) -> Option:
    default, problem = _text(option.default), ""
    try:
        parse(option, os.environ.get(option.variable, ""))
    except ValueError as error:
        problem = str(error)
    return Option(
        variable=option.variable,
        value=os.environ.get(option.variable, default),
        default=default,
        is_set=option.variable in os.environ,
        reader=option.reader,
        meaning=option.meaning,
        problem=problem,
    )


def _text(value: bool | int | str | None) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else str(value)
