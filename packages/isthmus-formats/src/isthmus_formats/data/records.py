"""Records: the common form between all forms of data sets."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class DataError(Exception):
    """A problem of the input or the output, in one line: what, where, remedy."""

    status = 1


class UsageError(DataError):
    """A wrong option, whatever the input is."""

    status = 2


class RowError(ValueError):
    """A problem of one row; the caller adds the file and the number of the row."""


class Turn(NamedTuple):
    """One message of a conversation.

    Attributes:
        role: ``system``, ``user``, ``assistant`` or ``tool``.
        text: what was said.
    """

    role: str
    text: str


class Record(NamedTuple):
    """A conversation, or a plain text if it has no turns.

    Attributes:
        id: identifier of the source; "" if it has none.
        turns: messages in order.
        text: the plain text.
    """

    id: str
    turns: tuple[Turn, ...] = ()
    text: str = ""


Row = Mapping[str, Any]


def kind_of(value: object) -> str:
    """Return the name of the type of a JSON value, for messages."""
    return "null" if value is None else f"a {type(value).__name__}"


def text_of(row: Row, key: str) -> str:
    """Return a field of a row that must be a string.

    Raises:
        RowError: it is absent, of another type, or not valid Unicode.
    """
    value = row.get(key)
    if key not in row:
        raise RowError(f"no field {key!r}")
    if not isinstance(value, str):
        raise RowError(f"{kind_of(value)} instead of a string in {key!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise RowError(f"half of a surrogate pair in {key!r}, which UTF-8 cannot hold") from None
    return value


def id_of(row: Row) -> str:
    """Return the identifier of a row as text; "" if it has none."""
    return "" if row.get("id") is None else text_of({"id": str(row["id"])}, "id")
