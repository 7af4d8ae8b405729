"""Wording of pydantic's errors: the entry, its value, and the remedy."""

import json
from typing import Any, NamedTuple

from pydantic import ValidationError

_MESSAGES = {  # keyed by pydantic's type of error, where its own message would not say what to do
    "missing": "is missing; add it",
    "extra_forbidden": "unknown entry; remove it or correct its name",
    "dict_type": "expected a mapping of names to values",
    "model_type": "expected a mapping of names to values",
    "tuple_type": "expected a list",
    "list_type": "expected a list",
    "too_short": "has no items; add at least one",
}


class Problem(NamedTuple):
    """A problem of a file.

    Attributes:
        entry: where, such as ``server_list[0].device[1].rank_id``; "" is the whole file.
        text: value, what is wrong with it, and the remedy.
        code: error codes of HCCL that it leads to; "" if unknown.
    """

    entry: str
    text: str
    code: str = ""


def problems(error: ValidationError) -> list[Problem]:
    """Return the problems that pydantic found; unknown entries first, as a wrong name is also a missing one."""
    found = error.errors(include_url=False)
    # A list whose items are wrong is also reported as too short.
    found = [each for each in found if each["type"] != "too_short" or each["input"] == []] or found
    found.sort(key=lambda each: each["type"] != "extra_forbidden")
    return [Problem(entry(*each["loc"]), _text(each)) for each in found]


def entry(*parts: int | str) -> str:
    """Return the path of an entry: ``entry("hosts", 0, "name")`` is ``hosts[0].name``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")


def _text(error: Any) -> str:
    kind, value = error["type"], error["input"]
    text = _MESSAGES.get(kind, error["msg"].removeprefix("Value error, "))
    if kind == "string_type" and isinstance(value, int | float) and not isinstance(value, bool):
        text = f'expected a string; write "{value}"'
    elif kind == "int_type" and isinstance(value, str) and value.isdecimal():
        text = f"expected a number; write {int(value)} without quotes"
    elif kind == "literal_error":
        text = f"expected {error['ctx']['expected']}"
    if kind in ("missing", "extra_forbidden") or isinstance(value, dict):
        return text
    return f"{format_value(value)}: {text}"


def format_value(value: object) -> str:
    """Return a value as JSON, at most 80 characters of it."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."
