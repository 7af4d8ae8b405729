"""Every option of Isthmus with its current value, checked: what ``isthmus env`` lists.

The options themselves are declared in :mod:`isthmus.options`, which code that acts on one reads.
"""

import os
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, ValidationError, create_model
from pydantic_settings import BaseSettings, SettingsConfigDict

from isthmus.options import OPTIONS, PREFIX, parse
from isthmus.options import Option as Declared


class _Base(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, extra="ignore")


def _field(option: Declared) -> Any:
    """Type and default; text of the environment is parsed and checked as the table says."""

    def parsed(value: Any) -> Any:
        return parse(option, value) if isinstance(value, str) else value

    return Annotated[Any, BeforeValidator(parsed)], option.default


Settings = create_model("Settings", __base__=_Base, **{option.name: _field(option) for option in OPTIONS})
Settings.__doc__ = "The options with their current values, typed and checked."


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
    """All options in the order of their declaration."""
    problems = _problems()
    return [_describe(option, problems) for option in OPTIONS]


def unknown() -> list[str]:
    """Variables that begin with ISTHMUS_ and name no option: a misspelling, most likely."""
    known = {option.variable for option in OPTIONS}
    return sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)


def _problems() -> dict[str, str]:
    try:
        Settings()
    except ValidationError as error:
        return {str(entry["loc"][0]): entry["msg"].removeprefix("Value error, ") for entry in error.errors()}
    return {}


def _describe(option: Declared, problems: dict[str, str]) -> Option:
    default = _text(option.default)
    return Option(
        variable=option.variable,
        value=os.environ.get(option.variable, default),
        default=default,
        is_set=option.variable in os.environ,
        reader=option.reader,
        meaning=option.meaning,
        problem=problems.get(option.name, ""),
    )


def _text(value: bool | int | str | None) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else str(value)
