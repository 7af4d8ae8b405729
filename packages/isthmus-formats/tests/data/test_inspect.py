"""``isthmus data inspect``: labels as they are, tokens that a tokenizer lacks, and data sets in several files."""

import json
import re
import struct
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet
from safetensors.numpy import save_file
from typer.testing import CliRunner

from isthmus_common.application import app
from isthmus_formats.data import formats, tokenizers
from isthmus_formats.data.formats import Plan, mindrecord
from isthmus_formats.data.inspect import inspect
from isthmus_formats.data.records import DataError
from isthmus_formats.data.run import Input
from isthmus_formats.data.samples import Sample, of_labels
from isthmus_formats.data.work import work

Rows = list[dict[str, list[int]]]


def store(path: Path, rows: Rows) -> Path:
    """Write rows as they are, with their labels."""
    if path.suffix == ".mindrecord":
        samples = [of_labels(each["input_ids"], each["labels"], None) for each in rows]
        tokens = sum(len(each["input_ids"]) for each in rows)
        plan = Plan(lambda: iter(samples), len(rows), tokens, 0, 1000, True, False)
        with work(path, {}, False) as state:
            state.publish(mindrecord.write(state, path, plan))
    elif path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".arrow":
        table = pyarrow.Table.from_pylist(rows)
        with pyarrow.ipc.new_stream(str(path), table.schema) as stream:
            stream.write_table(table)
    elif path.suffix == ".safetensors":
        save_file({name: np.array([each[name] for each in rows], np.int64) for name in rows[0]}, path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(change, count: int = 8) -> Rows:
    rows = []
    for each in range(count):
        ids = [each + 3 * place for place in range(20)]
        rows.append({"input_ids": ids, "labels": change(list(ids))})
    return rows


SHIFTED = {
    "with the next token at the end": lambda ids: [*ids[1:], 7],
    "with -100 at the end": lambda ids: [*ids[1:], -100],
    "only the answer": lambda ids: [-100] * 9 + [*ids[10:18], 2, -100, -100],
}
ALL_FORMATS = [".mindrecord", ".parquet", ".arrow", ".safetensors", ".json", ".jsonl"]


def labels_of(path: Path) -> str:
    return inspect(Input((path,)), 1, None, "")[0]["labels"]


@pytest.mark.parametrize("suffix", ALL_FORMATS)
def test_shifted_labels_are_told_and_shown(suffix, tmp_path):
    for change in SHIFTED.values():
        path = store(tmp_path / f"x{suffix}", rows_of(change))
        facts, shown = inspect(Input((path,)), 2, None, "")
        assert facts["labels"] == "input_ids shifted by one (labels[i] is input_ids[i + 1])"
        row = rows_of(change)[0]
        assert [each.title for each in shown] == [
            "sample 0: 20 tokens", "sample 0: labels", "sample 1: 20 tokens", "sample 1: labels"
        ]  # fmt: skip
        assert shown[0].parts == [(" ".join(map(str, row["input_ids"])), False)]
        said = " ".join(str(each) for each in row["labels"] if each != -100)
        assert [part.text for part in shown[1].parts if part.trained] == [said]
        assert facts["trained tokens"] == 8 * sum(each != -100 for each in row["labels"])
        path.unlink()


@pytest.mark.parametrize("suffix", ALL_FORMATS)
def test_labels_that_are_the_tokens_are_marked_in_them(suffix, tmp_path):
    path = store(tmp_path / f"x{suffix}", rows_of(lambda ids: [-100] * 5 + ids[5:]))
    facts, shown = inspect(Input((path,)), 1, None, "")
    assert facts["labels"] == "input_ids"
    assert [part.trained for part in shown[0].parts] == [False, True]
    assert len(shown) == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda ids: [32000] * 9 + ids[9:],
            "other values: 72 of 160 are not the token .*most often 32000 \\(72\\)",
        ),
        (lambda ids: [7, *ids[:-1]], "input_ids shifted back by one"),
        (lambda ids: [-100] * len(ids), "all -100"),
        (lambda ids: ids[:4], "of another length than input_ids in 8 of 8 samples"),
        (lambda ids: [*ids[:-1], 5], "other values: 8 of 160 .*0 of 152 the next token"),
    ],
)
def test_other_labels_are_told(change, text, tmp_path):
    assert re.match(text, labels_of(store(tmp_path / "x.jsonl", rows_of(change))))


def test_labels_that_fit_two_conventions_are_ambiguous(tmp_path):
    rows = [{"input_ids": [5] * 6, "labels": [5] * 6}]
    found = labels_of(store(tmp_path / "x.jsonl", rows))
    assert found.startswith("ambiguous: input_ids, or input_ids shifted by one")
    assert (
        "labels" not in inspect(Input((store(tmp_path / "y.jsonl", [{"input_ids": [1]}]),)), 1, None, "")[0]
    )


def test_a_folder_that_datasets_saved_is_read_whole(tmp_path):
    (tmp_path / "set").mkdir()
    for name in ("a", "b"):
        store(tmp_path / "set" / f"{name}.arrow", rows_of(SHIFTED["with -100 at the end"]))
    facts, _ = inspect(Input((tmp_path / "set",)), 0, None, "")
    assert (facts["format"], facts["samples"]) == ("arrow", 16)
    assert facts["labels"].startswith("input_ids shifted by one")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"input_ids": [1.5]}, "input_ids is not a list of integers"),
        ({"input_ids": [[1]]}, "input_ids is not a list of integers"),
        ({"input_ids": 3}, "input_ids is not a list of integers"),
        ({"input_ids": [True]}, "input_ids is not a list of integers"),
        ({"input_ids": [1, None]}, "input_ids is not a list of integers"),
        ({"input_ids": [2**31]}, "input_ids has 2147483648, which does not fit into 32 bits"),
        ({"input_ids": [1], "labels": ["a"]}, "labels is not a list of integers"),
        ({"input_ids": [1], "seq_lengths": [2]}, r"seq_lengths \[2\] of 1 tokens"),
        ({"input_ids": [1], "seq_lengths": [-1, 1]}, r"seq_lengths \[-1, 1\] of 1 tokens"),
    ],
)
def test_numbers_that_are_no_tokens_are_refused(row, message, tmp_path):
    with pytest.raises(DataError, match=f"x.jsonl: row 1: no tokens: {message}"):
        list(formats.read(store(tmp_path / "x.jsonl", [row])))


# ---- Tokens that the tokenizer lacks -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bpe", "pieces"])
@pytest.mark.parametrize("token", ["size", 99999, -1, 2**31 - 1])
@pytest.mark.parametrize("suffix", [".jsonl", ".mindrecord"])
def test_a_token_that_the_tokenizer_lacks_is_one_line(token, kind, suffix, request, tmp_path):
    folder = request.getfixturevalue(kind)
    size = tokenizers.load(folder).backend.size
    value = size if token == "size" else token
    path = store(tmp_path / f"x{suffix}", [{"input_ids": [1, 5, value], "labels": [-100, 5, value]}])
    result = CliRunner().invoke(app, ["data", "inspect", str(path), "--tokenizer", str(folder), "-n", "1"])
    assert result.exit_code == 1
    assert result.stderr == (
        f"isthmus: {path}: sample 0: token {value} is not in the tokenizer, which has {size}; "
        "give the tokenizer that wrote the file\n"
    )


def test_labels_that_are_no_tokens_are_shown_as_numbers(bpe, tmp_path):
    row = {"input_ids": [70, 71, 72, 73], "labels": [-100, 32000, 32000, 73]}
    _, shown = inspect(Input((store(tmp_path / "x.jsonl", [row]),)), 1, bpe, "")
    text = tokenizers.load(bpe).decode([73])
    assert shown[1].parts == [("[-100 x 1]", False), ("[32000 x 2]", True), (text, True)]


# ---- Data sets in several files ------------------------------------------------------------------------


def divided(folder: Path, base: str, count: int) -> list[Path]:
    """Write a data set in parts, as MindSpore's FileWriter does with shard_num."""
    digits = len(str(count - 1))
    names = [f"{base}{number:0{digits}}" for number in range(count)]
    for number, name in enumerate(names):
        rows = rows_of(SHIFTED["with the next token at the end"], number + 1)
        samples = [of_labels(each["input_ids"], each["labels"], None) for each in rows]
        plan = Plan(lambda samples=samples: iter(samples), len(rows), 20 * len(rows), 0, 1000, True, False)
        with work(folder / name, {}, False) as state:
            state.publish(mindrecord.write(state, folder / name, plan))
        with (folder / name).open("r+b") as stream:
            header = json.loads(stream.read(struct.unpack("<Q", stream.read(8))[0]))
            header |= {"shard_addresses": names, "shard_id": number}
            text = json.dumps(header).encode()
            stream.seek(0)
            stream.write(struct.pack("<Q", len(text)) + text)
    return [folder / name for name in names]


@pytest.mark.parametrize("base", ["parts.mindrecord", "wiki2048"])
def test_one_part_opens_all(base, tmp_path):
    files = divided(tmp_path, base, 4)
    names = [*files, *(each.with_name(f"{each.name}.db") for each in files), tmp_path / base]
    for path in names:
        facts, shown = inspect(Input((path,)), 2, None, "")
        assert (facts["format"], facts["parts"], facts["samples"]) == ("mindrecord", "4 of 4", 10)
        assert shown[0].parts[0].text.startswith("0 3 6 9 ")
    files[2].unlink()
    facts, _ = inspect(Input((files[1],)), 0, None, "")
    assert (facts["parts"], facts["samples"]) == (f"3 of 4; missing: {files[2].name}", 7)
    files[3].write_bytes(b"x" * 100)
    with pytest.raises(DataError, match=f"{files[3].name}: not a MindRecord file"):
        inspect(Input((files[0],)), 0, None, "")


def test_more_than_ten_parts_have_two_digits(tmp_path):
    divided(tmp_path, "x.mindrecord", 11)
    facts, _ = inspect(Input((tmp_path / "x.mindrecord",)), 0, None, "")
    assert (facts["parts"], facts["samples"]) == ("11 of 11", 66)


@pytest.mark.parametrize("name", ["none.mindrecord0", "none.mindrecord", "none.db", "none.xyz"])
def test_a_file_that_is_absent_is_called_by_its_name(name, tmp_path):
    with pytest.raises(DataError, match=f"^{tmp_path / name}: no such file or directory$"):
        list(formats.read(tmp_path / name))


def test_a_file_of_an_unknown_format_is_told(tmp_path):
    (tmp_path / "x.xyz").write_bytes(b"\x00" * 100)
    with pytest.raises(DataError, match=r"x.xyz: unknown format; expected .mindrecord, .safetensors"):
        list(formats.read(tmp_path / "x.xyz"))


def test_the_stored_labels_come_back():
    sample = of_labels([1, 2, 3], [9, -100, 3], None)
    assert sample.labels().tolist() == [9, -100, 3]
    assert sample.mask is not None and sample.mask.tolist() == [True, False, True]
    assert Sample(sample.ids, sample.mask, sample.lengths).labels().tolist() == [1, -100, 3]
