"""Forms of rows: public converters' bytes, round trips, what is refused."""

import json
from pathlib import Path

import pytest

from isthmus_formats.data import forms
from isthmus_formats.data.convert import convert
from isthmus_formats.data.records import Record, RowError, Turn
from isthmus_formats.data.run import Input
from tests.data.conftest import conversation, rows

# Texts of MindFormers' alpaca_converter.py, which are Stanford Alpaca's.
WITH_INPUT = (
    "Below is an instruction that describes a task, paired with an input that provides further context. "
    "Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:"
)
WITHOUT_INPUT = (
    "Below is an instruction that describes a task. "
    "Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Response:"
)


def mindformers(data: list[dict]) -> list[dict]:
    prompts = [(WITH_INPUT if row.get("input", "") else WITHOUT_INPUT).format_map(row) for row in data]
    return [
        shared(str(i + 1), q, row["output"]) for i, (q, row) in enumerate(zip(prompts, data, strict=True))
    ]


def fastchat(data: list[dict]) -> list[dict]:
    found = []
    for index, row in enumerate(data):
        question = row["instruction"]
        if len(row["input"].strip()) > 1:
            question += "\nInput:\n" + row["input"]
        found.append(shared(f"alpaca_{index}", question, row["output"]))
    return found


def shared(name: str, question: str, answer: str) -> dict:
    return {
        "id": name,
        "conversations": [{"from": "human", "value": question}, {"from": "gpt", "value": answer}],
    }


TRICKY = [
    {"instruction": 'quotes " and \\ and \t tab', "input": "", "output": "line\nbreak\u2028"},
    {"instruction": "{braces} %s", "input": "x", "output": ""},
    {"instruction": "emoji 🙂 世界", "input": "  two ", "output": "\x7f é"},
]


@pytest.mark.parametrize(
    ("form", "peer"), [("alpaca-mindformers", mindformers), ("alpaca-fastchat", fastchat)]
)
@pytest.mark.parametrize("data", [TRICKY, rows(700)], ids=["tricky", "many"])
def test_conversations_are_the_public_converters_bytes(form, peer, data, tmp_path: Path):
    source, target = tmp_path / "alpaca.json", tmp_path / "conversations.json"
    source.write_text(json.dumps(data))
    convert(Input((source,), form), target, "", 1)
    assert target.read_bytes() == json.dumps(peer(data), indent=2, ensure_ascii=False).encode()


@pytest.mark.parametrize("form", [name for name in forms.FORMS if name.startswith("alpaca")])
def test_alpaca_comes_back(form):
    for index, row in enumerate(rows(50)):
        record = forms.FORMS[form].read({**row, "system": "Be brief."}, index)
        assert record.turns[0] == Turn("system", "Be brief.")
        back = forms.FORMS[form].write(record, index)
        if form != "alpaca-fastchat" or len(row["input"]) != 1:  # it drops inputs of one character
            assert back == {**row, "system": "Be brief."}


@pytest.mark.parametrize("form", ["sharegpt", "messages"])
def test_a_conversation_comes_back(form):
    record = Record("7", (Turn("system", "s"), Turn("user", "u"), Turn("assistant", "a"), Turn("tool", "t")))
    assert forms.FORMS[form].read(forms.FORMS[form].write(record, 0), 0) == record


def test_parts_of_a_message_are_joined():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    row = {"messages": [{"role": "user", "content": parts}]}
    assert forms.FORMS["messages"].read(row, 0).turns == (Turn("user", "ab"),)


@pytest.mark.parametrize(
    ("form", "row", "reason"),
    [
        ("alpaca", {"instruction": "x"}, "no field 'output'"),
        ("alpaca", {"instruction": 3, "output": ""}, "a int instead of a string in 'instruction'"),
        ("sharegpt", {"conversations": []}, "no turns in 'conversations'"),
        ("sharegpt", {"conversations": [{"from": "narrator", "value": "x"}]}, "unknown role 'narrator'"),
        ("sharegpt", {"conversations": ["x"]}, "without 'from' and 'value'"),
        ("messages", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "is not a text"),
        ("messages", {"messages": [{"role": "assistant", "content": "", "tool_calls": [1]}]}, "tool_calls"),
        ("text", {"content": "x"}, "no field 'text'"),
        ("text", {"text": "x\ud83d"}, "half of a surrogate pair in 'text'"),
        ("text", {"text": "x", "id": "\ud83d"}, "half of a surrogate pair in 'id'"),
    ],
)
def test_a_wrong_row_is_refused(form, row, reason):
    with pytest.raises(RowError, match=reason):
        forms.FORMS[form].read(row, 0)


def test_what_a_form_cannot_hold_is_refused():
    with pytest.raises(RowError, match="4 turns"):
        forms.FORMS["alpaca"].write(conversation("a", "b", "c", "d"), 0)
    with pytest.raises(RowError, match="does not have the prompt"):
        forms.FORMS["alpaca-mindformers"].write(conversation("a", "b"), 0)
    with pytest.raises(RowError, match="not a conversation"):
        forms.FORMS["sharegpt"].write(Record("", (), "text"), 0)


def test_the_form_is_told_from_the_first_row():
    assert forms.guess({"id": 1, "conversations": []}, "text") == "sharegpt"
    assert forms.guess({"body": "x"}, "body") == "text"
    with pytest.raises(RowError, match="no known form has 'a', 'b'; give --from"):
        forms.guess({"a": 1, "b": 2}, "text")
