"""Rows of files: what is read, where it resumes, what damaged files say."""

import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus_formats.data import sources
from isthmus_formats.data.records import DataError, RowError

DATA = [
    {"text": "a"},
    {"text": 'é "]}{[,\\ 世界 🙂', "n": [1, {"x": None}]},
    {},
    {"text": "z" * 3000, "e": 1.5e3},
]


def read(path: Path, start: int = 0) -> list:
    return [row for row, _ in sources.READERS[path.suffix].rows(path, start)]


def write(path: Path, data: list) -> Path:
    """Write rows in the format of the suffix."""
    if path.suffix == ".json":
        path.write_text(json.dumps(data, indent=4, ensure_ascii=False))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in data))
    else:
        import datasets
        from pyarrow import parquet

        table = datasets.Dataset.from_list(data)
        if path.suffix == ".parquet":
            parquet.write_table(table.data.table, path, row_group_size=7)
        else:
            table.save_to_disk(path.with_suffix(""))
            next(path.with_suffix("").glob("*.arrow")).rename(path)
    return path


@pytest.fixture(params=["x.json", "x.jsonl", "x.parquet", "x.arrow"])
def file(request, tmp_path: Path) -> tuple[Path, list]:
    data = DATA if "json" in request.param else [{"text": f"row {i}", "id": str(i)} for i in range(40)]
    return write(tmp_path / request.param, data), data


def test_all_rows_are_read(file):
    path, data = file
    assert read(path) == data


def test_reading_goes_on_after_any_row(file):
    path, data = file
    for index, (_, offset) in enumerate(sources.READERS[path.suffix].rows(path, 0)):
        assert read(path, offset) == data[index + 1 :]


def test_a_truncated_file_is_an_error_or_has_an_invalid_row(file, tmp_path):
    path, data = file
    content = path.read_bytes()
    for size in range(1, len(content) - 1, max(1, len(content) // 97)):
        path.write_bytes(content[:size])
        try:
            found = read(path)
        except DataError as error:
            assert str(path) in str(error)
        else:
            assert path.suffix in (".jsonl", ".arrow"), size  # formats without an end
            rest = found[: len(data)]
            assert [row for row in rest if not isinstance(row, RowError)] == data[: len(rest)][
                : len(rest) - any(isinstance(row, RowError) for row in rest)
            ]


@settings(deadline=None)
@given(
    st.lists(
        st.dictionaries(st.text(max_size=3), st.recursive(st.text() | st.integers(), st.lists)), max_size=5
    ),
    st.integers(1, 40),
    st.sampled_from([None, 1]),
    st.booleans(),
)
def test_an_array_read_in_pieces_is_what_json_reads(tmp_path_factory, data, size, indent, ascii):
    path = tmp_path_factory.mktemp("json") / "x.json"
    text = json.dumps(data, indent=indent, ensure_ascii=ascii)
    path.write_text(text, errors="replace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "_READ", size)
        rows = list(sources.json_array(path, 0))
    assert [row for row, _ in rows] == json.loads(path.read_text())
    for index, (_, offset) in enumerate(rows):
        assert path.read_bytes()[:offset].endswith(b"}"), index


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file ends"),
        (b'"x"', "expected '\\[' but found '\"'"),
        (b'[{"a": 1} {"b": 2}]', "byte 10: expected ','"),
        (b'[{"a": 1},]', "byte 10: expected '{' but found '\\]'"),
        (b"[1, 2]", "byte 1: expected '{'"),
        (b'[{"a": 1}', "the file ends inside the array"),
        (b'[{"a": "x', "byte 1: the file ends inside the object"),
        (b'[{"a": 1}] x', "'x' after the end"),
        (b'[{"a" 1}' + b" " * 50, "byte 6: Expecting ':'"),
        (b'[{"a": "\xff"}]', "byte 8: invalid UTF-8 \\(byte 0xff\\); convert it with iconv"),
        (b"[" + b'{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_an_invalid_array_is_an_error_with_its_place(content, message, tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        list(sources.json_array(path, 0))
    assert str(path) in str(caught.value)


def test_a_byte_order_mark_is_skipped(tmp_path):
    for name, content in (("x.json", '[{"a": 1}]'), ("y.json", '{"a": 1}\n'), ("z.jsonl", '{"a": 1}\n')):
        (tmp_path / name).write_text(content, encoding="utf-8-sig")
        assert read(tmp_path / name) == [{"a": 1}]


def test_invalid_lines_are_rows_of_their_own(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a": 1}\n\n{"a": \n[1]\n{"a": "\xff"}\n{"a": 2}')
    rows = read(path)
    assert [row for row in rows if not isinstance(row, RowError)] == [{"a": 1}, {"a": 2}]
    assert [str(row)[:14] for row in rows[1:4]] == ["invalid JSON (", "a list, not an", "invalid UTF-8 "]


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_large_rows_need_the_memory_of_a_few_of_them(suffix, tmp_path):
    path = write(tmp_path / f"x{suffix}", [{"text": "é" * 5_000_000}] * 6)
    tracemalloc.start()
    assert sum(len(row["text"]) for row, _ in sources.READERS[suffix].rows(path, 0)) == 30_000_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000  # a row has 10 MB, the file 60 MB


def test_chunks_have_bounded_rows_and_bytes_and_know_their_place(tmp_path):
    a = write(tmp_path / "a.jsonl", [{"text": str(i)} for i in range(600)])
    b = write(tmp_path / "b.json", [{"text": "x" * 400_000}] * 7)
    c = write(tmp_path / "c.parquet", [{"text": str(i)} for i in range(300)])
    chunks = list(sources.chunks([a, b, c]))
    assert [len(chunk.rows) for chunk in chunks] == [256, 256, 88, 3, 3, 1, 256, 44]
    assert chunks[-1].end.total == 907
    sizes = [path.stat().st_size for path in (a, b, c)]
    assert [chunks[index].done for index in (2, 5, 7)] == [sizes[0], sum(sizes[:2]), sum(sizes)]
    for index, chunk in enumerate(chunks):
        rest = list(sources.chunks([a, b, c], chunk.end))
        assert [row for each in rest for row in each.rows] == [
            row for each in chunks[index + 1 :] for row in each.rows
        ]


def test_wrong_inputs_are_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        sources.inputs([tmp_path / "x.json"])
    (tmp_path / "x.csv").touch()
    with pytest.raises(DataError, match=r"unknown suffix '\.csv'"):
        sources.inputs([tmp_path / "x.csv"])
    with pytest.raises(DataError, match=r"a folder without \.arrow files"):
        sources.inputs([tmp_path])
