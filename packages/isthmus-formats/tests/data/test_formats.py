"""Files of samples: what is written is read back, and is what other tools write and read."""

import json
import os
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest

from isthmus_formats.data import formats
from isthmus_formats.data.formats import Plan, mindrecord
from isthmus_formats.data.inspect import inspect
from isthmus_formats.data.records import DataError
from isthmus_formats.data.run import Input
from isthmus_formats.data.samples import Sample
from isthmus_formats.data.work import work

NAMES = {
    "megatron": "corpus", "mindrecord": "x.mindrecord", "safetensors": "x.safetensors", "parquet": "x.parquet",
    "jsonl": "x.jsonl",
}  # fmt: skip


def plan(
    *, masked: bool = True, packed: bool = True, length: int = 0, vocabulary: int = 1000, count: int = 20
) -> Plan:
    """Return random samples."""
    choose = np.random.default_rng(0)
    samples = []
    for _ in range(count):
        blocks = choose.integers(1, 9, choose.integers(1, 4) if packed else 1).astype(np.int32)
        size = length or int(blocks.sum())
        mask = choose.random(size) < 0.5 if masked else None
        if length:
            mask[blocks.sum() :] = False
        samples.append(Sample(choose.integers(0, vocabulary, size, np.int32), mask, blocks))
    total = sum(len(each.ids) for each in samples)
    return Plan(lambda: iter(samples), count, total, length, vocabulary, masked, packed)


def write(path: Path, made: Plan) -> Path:
    name = formats.name_of(path)
    with work(path, {}, False) as state:
        state.publish(formats.module(name).write(state, path, made))
    return path


def same(found: Sample, expected: Sample, packed: bool) -> None:
    assert found.ids.tolist() == expected.ids.tolist()
    assert (found.mask is None) == (expected.mask is None)
    if expected.mask is not None:
        assert found.mask.tolist() == expected.mask.tolist()
    if packed:
        assert found.lengths.tolist() == expected.lengths.tolist()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("length", [0, 40])
def test_samples_come_back(name, masked, packed, length, tmp_path):
    if length and (name == "megatron" or not masked):
        return
    made = plan(masked=masked, packed=packed, length=length)
    stored = formats.read(write(tmp_path / NAMES[name], made))
    for found, expected in zip(stored, made.samples(), strict=True):
        same(found, expected, packed)
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", NAMES)
def test_no_samples_come_back_as_none(name, tmp_path):
    stored = formats.read(write(tmp_path / NAMES[name], plan(count=0)))
    assert list(stored) == []


@pytest.mark.parametrize("vocabulary", [1000, 65499, 65500, 200_000])
def test_megatron_files_are_those_of_its_builder(vocabulary, tmp_path):
    indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    made = plan(vocabulary=vocabulary, masked=False)
    write(tmp_path / "ours", made)
    builder = indexed.IndexedDatasetBuilder(
        str(tmp_path / "theirs.bin"), dtype=indexed.DType.optimal_dtype(vocabulary)
    )
    for sample in made.samples():
        builder.add_document(sample.ids, sample.lengths.tolist())
    builder.finalize(str(tmp_path / "theirs.idx"))
    for suffix in (".bin", ".idx"):
        assert (tmp_path / f"ours{suffix}").read_bytes() == (tmp_path / f"theirs{suffix}").read_bytes()


def test_megatron_reads_tokens_and_masks(tmp_path):
    indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    made = plan()
    prefix = str(write(tmp_path / "corpus", made))
    ids, masks = indexed.IndexedDataset(prefix), indexed.IndexedDataset(f"{prefix}_mask")
    index = 0
    for number, sample in enumerate(made.samples()):
        assert ids.document_indices[number] == index
        for ends in np.split(np.arange(len(sample.ids)), np.cumsum(sample.lengths)[:-1]):
            assert ids[index].tolist() == sample.ids[ends].tolist()
            assert masks[index].tolist() == sample.mask[ends].tolist()
            index += 1
    assert len(ids) == index


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_datasets_loads_tables(suffix, tmp_path):
    import datasets

    made = plan()
    path = write(tmp_path / f"x{suffix}", made)
    builder = "parquet" if suffix == ".parquet" else "json"
    loaded = datasets.load_dataset(
        builder, data_files=str(path), split="train", cache_dir=str(tmp_path / "cache")
    )
    for row, sample in zip(loaded, made.samples(), strict=True):
        assert row["input_ids"] == sample.ids.tolist()
        assert row["labels"] == [i if m else -100 for i, m in zip(row["input_ids"], sample.mask, strict=True)]
        assert row["seq_lengths"] == sample.lengths.tolist()


def test_integers_are_packed_as_mindspore_packs_them():
    values = np.array([127, 128, -128, -129, 32767, 32768, -32768, -32769], np.int32)
    data = mindrecord._pack_integers(values)
    # Read from a file that MindSpore 2.10 wrote.
    assert data.hex() == "0000000811667f8000807fffff7f008000000080ff7fffff"
    assert mindrecord._unpack_integers(data).tolist() == values.tolist()
    assert mindrecord._unpack_integers(
        bytes.fromhex("000000033801000000000001000" + "0409c0000")
    ).tolist() == [1, 1 << 40, 40000]
    assert mindrecord._unpack_integers(mindrecord._pack_integers(np.array([], np.int32))).tolist() == []


@pytest.mark.parametrize("name", NAMES)
def test_a_truncated_file_is_an_error(name, tmp_path, monkeypatch):
    monkeypatch.setattr(mindrecord, "_HEADER", 4096)
    monkeypatch.setattr(mindrecord, "_PAGE", 2048)
    path = write(tmp_path / NAMES[name], plan(length=0 if name == "megatron" else 40))
    for file in sorted(tmp_path.glob("*")):
        if file.suffix == ".db":
            continue  # an index that only MindSpore uses
        content = file.read_bytes()
        sizes = [0, 1, 9, len(content) // 2, len(content) - 1]
        # Lines have no end, and raw data of MindRecord is not read.
        for size in {"jsonl": sizes[1:-1], "mindrecord": sizes[:-1]}.get(name, sizes):
            file.write_bytes(content[:size])
            with pytest.raises(DataError, match=str(tmp_path)):
                list(formats.read(path))
        file.write_bytes(content)


@pytest.mark.parametrize("name", NAMES)
def test_flipped_bits_are_an_error_or_other_tokens(name, tmp_path):
    """The formats have no checksums."""
    choose = random.Random(0)
    path = write(tmp_path / NAMES[name], plan())
    for file in sorted(path for path in tmp_path.iterdir() if path.suffix != ".db"):
        content = file.read_bytes()
        for reach in (64, 1024, len(content)) * 5:
            place = choose.randrange(min(reach, len(content)))
            if name == "mindrecord" and reach == len(content):
                place = mindrecord._HEADER + choose.randrange(1000)
            file.write_bytes(
                content[:place] + bytes([content[place] ^ 1 << choose.randrange(8)]) + content[place + 1 :]
            )
            try:
                inspect(Input((path,)), 1, None, "")
            except DataError as error:
                assert str(tmp_path) in str(error)
        file.write_bytes(content)


def test_a_sample_larger_than_a_page_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(mindrecord, "_PAGE", 20)
    with pytest.raises(DataError, match="a page has 20; give a lower --seq-length"):
        write(tmp_path / "x.mindrecord", plan())
    assert not any(tmp_path.iterdir())


def test_megatron_refuses_padding(tmp_path):
    with pytest.raises(DataError, match="leave out --pad"):
        write(tmp_path / "corpus", plan(length=40))


# ---- The real MindSpore, where ISTHMUS_TEST_MINDSPORE names the Python that has it ----------------------

READ = """
import json, sys
from mindspore.dataset import MindDataset
from mindspore.mindrecord import FileReader
rows = [{k: v.tolist() for k, v in row.items()} for row in FileReader(sys.argv[1]).get_next()]
data = MindDataset(sys.argv[1], shuffle=False)
assert [{k: v.tolist() for k, v in row.items()} for row in data.create_dict_iterator(output_numpy=True)] == rows
print(json.dumps(rows))
"""
WRITE = """
import json, sys
import numpy as np
from mindspore.mindrecord import FileWriter
fields, path = json.loads(sys.argv[2]), sys.argv[1]
writer = FileWriter(path, 1)
writer.set_page_size(1 << 15)
writer.add_schema({name: {"type": "int32", "shape": [-1]} for name in fields}, "samples")
writer.write_raw_data([{k: np.array(v, np.int32) for k, v in row.items()} for row in json.loads(sys.stdin.read())])
writer.commit()
"""


def mindspore(code: str, *arguments: object, given: str = "") -> str:
    python = os.environ.get("ISTHMUS_TEST_MINDSPORE", "")
    if not python:
        pytest.skip("ISTHMUS_TEST_MINDSPORE names no Python with MindSpore")
    words = [python, "-c", code, *map(str, arguments)]
    result = subprocess.run(words, input=given, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("packed", [True, False])
def test_mindspore_reads_and_writes_the_same_file(packed, tmp_path, monkeypatch):
    monkeypatch.setattr(mindrecord, "_PAGE", 1 << 15)
    made = plan(packed=packed, vocabulary=1 << 20, count=2000)
    ours = write(tmp_path / "x.mindrecord", made)
    rows = json.loads(mindspore(READ, ours).splitlines()[-1])
    fields = ["input_ids", "labels", "seq_lengths"][: 3 if packed else 2]
    for row, sample in zip(rows, made.samples(), strict=True):
        values = dict(zip(fields, (sample.ids, sample.labels(), sample.lengths), strict=False))
        assert row == {name: value.tolist() for name, value in values.items()}
    (tmp_path / "theirs").mkdir()
    theirs = tmp_path / "theirs" / "x.mindrecord"
    mindspore(WRITE, theirs, json.dumps(fields), given=json.dumps(rows))
    assert theirs.read_bytes() == ours.read_bytes()
    for found, expected in zip(formats.read(theirs), made.samples(), strict=True):
        same(found, expected, packed)
