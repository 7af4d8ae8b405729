"""Forms of rows: how Alpaca, ShareGPT, OpenAI messages and plain text name the parts of a record."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from isthmus_formats.data.records import Record, Row, RowError, Turn, id_of, text_of


class Form(NamedTuple):
    """One form.

    Attributes:
        keys: fields of a row that it understands; others are dropped, and counted.
        read: returns the record of a row; called with the row and its index in the input.
        write: returns the row of a record; called with the record and its index in the input.
        turns: "" for plain text, else the fields of a turn: role and text.
    """

    keys: frozenset[str]
    read: Callable[[Row, int], Record]
    write: Callable[[Record, int], dict[str, Any]]
    turns: tuple[str, ...] = ()


# ---- Alpaca --------------------------------------------------------------------------------------------

PREAMBLE = "Below is an instruction that describes a task"
WITH_INPUT = (
    f"{PREAMBLE}, paired with an input that provides further context. "
    "Write a response that appropriately completes the request.\n\n"
)
WITHOUT_INPUT = f"{PREAMBLE}. Write a response that appropriately completes the request.\n\n"
INPUT = "\n\n### Input:\n"


def _join_instruction(instruction: str, given: str) -> str:
    return instruction + INPUT + given if given else instruction


def _mindformers(instruction: str, given: str) -> str:
    """Return the prompt of Stanford's training script, as MindFormers' alpaca_converter.py stores it."""
    preamble = WITH_INPUT if given else WITHOUT_INPUT
    return f"{preamble}### Instruction:\n{_join_instruction(instruction, given)}\n\n### Response:"


def _fastchat(instruction: str, given: str) -> str:
    """Return the question as FastChat's convert_alpaca.py stores it: without an input of one character."""
    return f"{instruction}\nInput:\n{given}" if len(given.strip()) > 1 else instruction


_MINDFORMERS = re.compile(
    f"(?:{re.escape(WITH_INPUT)}|{re.escape(WITHOUT_INPUT)})### Instruction:\n(.*)\n\n### Response:",
    re.DOTALL,
)


def _question(text: str, separator: str) -> tuple[str, str]:
    instruction, _, given = text.partition(separator)
    return instruction, given


def _split_mindformers(text: str) -> tuple[str, str]:
    found = _MINDFORMERS.fullmatch(text)
    if not found:
        raise RowError("the question does not have the prompt of MindFormers' alpaca_converter.py")
    return _question(found[1], INPUT)


def _alpaca(
    compose: Callable[[str, str], str], split: Callable[[str], tuple[str, str]], name: Callable[[int], str]
) -> Form:
    def read(row: Row, index: int) -> Record:
        given = text_of(row, "input") if row.get("input") is not None else ""
        system = [Turn("system", text_of(row, "system"))] if row.get("system") else []
        question = compose(text_of(row, "instruction"), given)
        turns = (*system, Turn("user", question), Turn("assistant", text_of(row, "output")))
        return Record(id_of(row) or name(index), turns)

    def write(record: Record, index: int) -> dict[str, Any]:
        turns = record.turns
        system = {"system": turns[0].text} if turns and turns[0].role == "system" else {}
        turns = turns[1:] if system else turns
        if [turn.role for turn in turns] != ["user", "assistant"]:
            raise RowError(f"{len(turns)} turns; Alpaca has one question and one answer")
        instruction, given = split(turns[0].text)
        return {"instruction": instruction, "input": given, "output": turns[1].text, **system}

    return Form(frozenset(("instruction", "input", "output", "system", "id")), read, write)


# ---- Conversations -------------------------------------------------------------------------------------

_ROLES = {
    **dict.fromkeys(("system",), "system"),
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "bing", "bard", "model"), "assistant"),
    **dict.fromkeys(("tool", "function", "observation", "ipython"), "tool"),
}
_SHAREGPT = {"system": "system", "user": "human", "assistant": "gpt", "tool": "tool"}


def _conversation(field: str, role: str, text: str, names: dict[str, str], numbered: bool) -> Form:
    def turn(each: Any) -> Turn:
        if not isinstance(each, dict) or {role, text} - each.keys():
            raise RowError(f"a turn in {field!r} without {role!r} and {text!r}")
        if each[role] not in _ROLES:
            raise RowError(f"unknown role {each[role]!r}; expected {', '.join(_ROLES)}")
        if each.get("tool_calls"):
            raise RowError("a turn with tool_calls; only text is supported")
        return Turn(_ROLES[each[role]], _content(each[text], text))

    def read(row: Row, index: int) -> Record:
        turns = row.get(field)
        if not isinstance(turns, list) or not turns:
            raise RowError(f"no turns in {field!r}")
        system = [Turn("system", text_of(row, "system"))] if row.get("system") else []
        return Record(id_of(row), (*system, *map(turn, turns)))

    def write(record: Record, index: int) -> dict[str, Any]:
        if not record.turns:
            raise RowError("a plain text, not a conversation")
        name = record.id or (str(index) if numbered else "")
        turns = [{role: names[each.role], text: each.text} for each in record.turns]
        return {"id": name, field: turns} if name else {field: turns}

    return Form(frozenset(("id", "system", field)), read, write, (role, text))


def _content(value: Any, key: str) -> str:
    """Return the text of a turn, also of a list of parts."""
    if isinstance(value, list):
        if any(not isinstance(part, dict) or part.get("type") != "text" for part in value):
            raise RowError(f"a part of {key!r} that is not a text")
        return "".join(text_of(part, "text") for part in value)
    return text_of({key: value}, key)


# ---- Plain text ----------------------------------------------------------------------------------------


def _text(field: str) -> Form:
    def write(record: Record, index: int) -> dict[str, Any]:
        if record.turns:
            raise RowError("a conversation, not a plain text; `isthmus data tokenize` renders conversations")
        return {"id": record.id, field: record.text} if record.id else {field: record.text}

    return Form(frozenset(("id", field)), lambda row, _: Record(id_of(row), (), text_of(row, field)), write)


FORMS = {
    "alpaca": _alpaca(_join_instruction, lambda text: _question(text, INPUT), lambda index: ""),
    "alpaca-mindformers": _alpaca(_mindformers, _split_mindformers, lambda index: str(index + 1)),
    "alpaca-fastchat": _alpaca(
        _fastchat, lambda text: _question(text, "\nInput:\n"), lambda index: f"alpaca_{index}"
    ),
    "sharegpt": _conversation("conversations", "from", "value", _SHAREGPT, True),
    "messages": _conversation("messages", "role", "content", {role: role for role in _SHAREGPT}, False),
    "text": _text("text"),
}


def form(name: str, text_field: str = "text") -> Form:
    """Return a form by its name."""
    return _text(text_field) if name == "text" else FORMS[name]


def guess(row: Row, text_field: str) -> str:
    """Return the name of a row's form, by its fields.

    Raises:
        RowError: no form has these fields.
    """
    for name, field in {
        "sharegpt": "conversations", "messages": "messages", "alpaca": "instruction", "text": text_field
    }.items():  # fmt: skip
        if field in row:
            return name
    fields = ", ".join(map(repr, row)) or "no field"
    raise RowError(f"no known form has {fields}; give --from or --text-field")
