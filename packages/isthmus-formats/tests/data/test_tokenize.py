"""Tokens and masks: a trained token has text of the assistant; records that are cut or masked are listed."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus_formats.data import formats, templates, tokenizers
from isthmus_formats.data.formats import mindrecord
from isthmus_formats.data.inspect import inspect
from isthmus_formats.data.packing import Layout
from isthmus_formats.data.records import DataError
from isthmus_formats.data.run import Input
from isthmus_formats.data.tokenize import Tokenization, tokenize, trained_mask
from isthmus_formats.data.train import train
from tests.data.conftest import conversation, encoded, rows

KINDS = ["bpe", "pieces"]


@pytest.fixture(params=KINDS)
def tokenizer(request) -> Path:
    return request.getfixturevalue(request.param)


def mask_of(path: Path, turns, template: str) -> tuple[list[int], np.ndarray, str, templates.Spans]:
    found = tokenizers.load(path)
    style = templates.find(template, found.special, list(found.backend.specials), None)
    text, spans = style.render(turns)
    encoding = found.backend.encode([text], places=True)[0]
    return list(encoding.ids), trained_mask(encoding, spans), text, spans


@settings(deadline=None, max_examples=40)
@given(st.lists(st.text(min_size=1, max_size=12), min_size=2, max_size=6), st.sampled_from(KINDS))
def test_a_trained_token_has_text_of_the_assistant(request_of, texts, kind):
    """Compare with the places one by one, and check that the answers are covered and the questions are not."""
    path = request_of(kind)
    found = tokenizers.load(path)
    ids, mask, text, spans = mask_of(path, conversation(*texts).turns, "vicuna")
    encoding = found.backend.encode([text], places=True)[0]
    offsets = [encoding.place(index) for index in range(len(ids))]
    said = {place for begin, end in spans for place in range(begin, end)}
    for (begin, end), is_trained in zip(offsets, mask, strict=True):
        inside = bool(said & set(range(begin, end))) if end > begin else begin in said
        assert is_trained == inside
    covered = {
        place for (begin, end), on in zip(offsets, mask, strict=True) if on for place in range(begin, end)
    }
    missed = said - covered
    assert not "".join(text[place] for place in sorted(missed)).strip()  # only white space has no token
    assert len(ids) == len(mask)


@pytest.fixture(scope="session")
def request_of(request):
    return request.getfixturevalue


def test_the_mask_is_that_of_each_segment_by_itself(tokenizer):
    """Segments tokenized one by one, where tokens do not cross their bounds."""
    found = tokenizers.load(tokenizer)
    turns = conversation("the model", "data 世界 🙂", "héllo", "loss").turns
    ids, mask, text, spans = mask_of(tokenizer, turns, "llama-3")
    expected_ids, expected_mask, place = [], [], 0
    for begin, end in [*spans, (len(text), len(text))]:
        for part, on in ((text[place:begin], False), (text[begin:end], True)):
            some = found.backend.encode([part], places=False)[0].ids if part else []
            expected_ids += some
            expected_mask += [on] * len(some)
        place = end
    if tokenizer.name == "bpe":  # SentencePiece puts a space before each segment
        assert ids == expected_ids
        assert mask.tolist() == expected_mask
    assert found.backend.decode([i for i, on in zip(ids, mask, strict=True) if on]).replace(
        "<|eot_id|>", "|"
    ).split("|")[:-1] == ["data 世界 🙂", "loss"]


def test_special_tokens_of_a_text_are_single_tokens(tokenizer):
    found = tokenizers.load(tokenizer)
    encoding = found.backend.encode(["<s>the</s>data</s></s>"], places=True)[0]
    assert encoding.ids[0] == found.id_of("bos_token") == 1
    assert list(encoding.ids).count(found.id_of("eos_token")) == 3
    assert encoding.place(0) == (0, 3)
    assert encoding.place(len(encoding.ids) - 1) == (18, 22)
    assert found.backend.decode(encoding.ids) == "<s>the</s>data</s></s>"


def test_hugging_face_reads_the_trained_tokenizer(alpaca, tmp_path):
    from transformers import AutoTokenizer

    folder = tmp_path / "tokenizer"
    train(Input((alpaca,)), folder, "bpe", 400, ["<|im_start|>", "<|im_end|>"], templates.BUILT_IN["chatml"])
    theirs, ours = AutoTokenizer.from_pretrained(folder), tokenizers.load(folder)
    turns = conversation("the model", "data 世界", "x", "loss").turns
    messages = [{"role": turn.role, "content": turn.text} for turn in turns]
    expected = theirs.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
    style = templates.find("", ours.special, list(ours.backend.specials), ours.chat_template)
    text, spans = style.render(turns)
    encoding = ours.backend.encode([text], places=True)[0]
    assert list(encoding.ids) == expected["input_ids"]
    assert trained_mask(encoding, spans).astype(int).tolist() == expected["assistant_masks"]


# ---- From files to samples -----------------------------------------------------------------------------


def source(path: Path, *records) -> Path:
    path.write_text("".join(json.dumps(encoded(record, "messages")) + "\n" for record in records))
    return path


def read(path: Path) -> list:
    return list(formats.read(path))


@pytest.mark.parametrize("name", ["corpus", "x.mindrecord", "x.safetensors", "x.parquet", "x.jsonl"])
def test_all_formats_have_the_same_samples(name, alpaca, bpe, tmp_path):
    task = Tokenization(Input((alpaca,)), bpe, "vicuna")
    facts = tokenize(task, tmp_path / name, Layout(0, "", None, 5), validation=0.2)
    found = read(tmp_path / name)
    other = read((tmp_path / name).with_name(f"{Path(name).stem}-validation{Path(name).suffix}"))
    assert len(found) + len(other) == facts["records"] == 300
    assert 30 < len(other) < 90
    assert sum(len(each.ids) for each in found + other) == facts["tokens"]
    assert sum(int(each.mask.sum()) for each in found + other) == facts["trained tokens"]
    backend = tokenizers.load(bpe).backend
    answers = {backend.decode(each.ids[each.mask]) for each in found + other}
    assert answers == {" " + row["output"] + "</s>" for row in rows(300)}


def test_cut_and_masked_records_are_counted_and_listed(bpe, tmp_path):
    path = source(
        tmp_path / "x.jsonl",
        conversation("short", "yes"),
        conversation("long " * 50, "never reached"),
        conversation("q", "long " * 100),
        conversation("only a question"),
    )
    facts = tokenize(Tokenization(Input((path,)), bpe, "chatml"), tmp_path / "y.jsonl", Layout(60))
    assert (facts["records"], facts["cut"], facts["masked"]) == (4, 2, 2)
    listed = [json.loads(line) for line in (tmp_path / "y.jsonl.issues.jsonl").read_text().splitlines()]
    assert [(each["record"], each["state"]) for each in listed] == [
        (1, "cut"), (1, "masked"), (2, "cut"), (3, "masked")
    ]  # fmt: skip
    samples = read(tmp_path / "y.jsonl")
    assert len(samples) == 4  # none is lost
    assert [len(each.ids) for each in samples[1:3]] == [60, 60]
    assert samples[2].mask[-1]


def test_plain_text_ends_with_eos_and_streams(tokenizer, tmp_path):
    texts = [row["output"] for row in rows(40)]
    path = tmp_path / "x.txt"
    path.write_text("".join(text + "\n" for text in texts))
    task = Tokenization(Input((path,)), tokenizer, append_eos=True)
    facts = tokenize(task, tmp_path / "x.safetensors", Layout(32, "stream"), padded=True)
    samples = read(tmp_path / "x.safetensors")
    assert {len(each.ids) for each in samples} == {32}
    assert "cut" not in facts
    backend = tokenizers.load(tokenizer).backend
    ids = np.concatenate([each.ids[: each.lengths.sum()] for each in samples])
    assert backend.decode(ids.tolist()) == "".join(text + "</s>" for text in texts)


@pytest.mark.parametrize("name", ["x.mindrecord", "x.safetensors", "x.parquet", "x.jsonl", "corpus"])
def test_a_stream_has_the_samples_of_llama_preprocess(name, tokenizer, tmp_path):
    """bos and eos around each paragraph, cut into samples of one length; the rest is dropped."""
    texts = [row["output"] for row in rows(40)]
    (tmp_path / "x.txt").write_text("".join(text + "\n\n" for text in texts))
    task = Tokenization(Input((tmp_path / "x.txt",)), tokenizer, append_eos=True, prepend_bos=True)
    facts = tokenize(task, tmp_path / name, Layout(33, "stream", repeat=2))
    backend = tokenizers.load(tokenizer).backend
    every = 2 * [i for each in backend.encode(texts, places=False) for i in (1, *each.ids, 2)]
    count, rest = divmod(len(every), 33)
    assert rest
    assert [each.ids.tolist() for each in read(tmp_path / name)] == np.reshape(
        every[:-rest], (count, 33)
    ).tolist()
    assert (facts["files"][name]["samples"], facts["files"][name]["dropped tokens"]) == (count, rest)


@pytest.mark.parametrize(
    ("pack", "padded"), [("stream", False), ("stream", True), ("records", True), ("", True)]
)
def test_rows_of_one_length_have_fields_of_one_length(pack, padded, bpe, tmp_path):
    """MindSpore makes batches of such rows only."""
    (tmp_path / "x.txt").write_text("".join(row["output"] + "\n" for row in rows(60)))
    task = Tokenization(Input((tmp_path / "x.txt",)), bpe)
    for name in "x.mindrecord", "x.parquet":
        tokenize(task, tmp_path / name, Layout(90, pack), padded=padded)
    found, plain = read(tmp_path / "x.mindrecord"), read(tmp_path / "x.parquet")
    assert [each.lengths.tolist() for each in found] == [each.lengths.tolist() for each in plain]
    file = (tmp_path / "x.mindrecord").read_bytes()
    fields = json.loads(file[8 : 8 + int.from_bytes(file[:8], "little")])["schema"][0]["blob_fields"]
    stored = []
    with (tmp_path / "x.mindrecord").open("rb") as stream:
        stream.seek(mindrecord._HEADER)
        for _ in found:
            body = stream.read(int.from_bytes(stream.read(8), "little"))
            stored.append([len(mindrecord._unpack_integers(part)) for part in mindrecord._parts(body)])
    assert len(stored) > 3
    assert {tuple(each) for each in stored} == {tuple(stored[0])}
    assert (stored[0][0], len(stored[0])) == (90, len(fields))


def test_fewer_tokens_than_a_sample_are_an_error(bpe, tmp_path):
    (tmp_path / "x.txt").write_text("the model\n")
    task = Tokenization(Input((tmp_path / "x.txt",)), bpe)
    with pytest.raises(
        DataError, match=r"y\.jsonl: 2 tokens, fewer than a sample of 64; give a lower --seq-length"
    ):
        tokenize(task, tmp_path / "y.jsonl", Layout(64, "stream"))
    assert [path.name for path in tmp_path.iterdir()] == ["x.txt"]
    tokenize(task, tmp_path / "y.jsonl", Layout(64, "stream"), padded=True)
    assert len(read(tmp_path / "y.jsonl")) == 1


def test_the_same_text_is_always_on_the_same_side(bpe, tmp_path):
    lines = [f"text {i}" for i in range(100)]
    sides = []
    for name, order in (("a", lines), ("b", [*lines[::-1], *lines])):
        (tmp_path / f"{name}.txt").write_text("".join(line + "\n" for line in order))
        tokenize(
            Tokenization(Input((tmp_path / f"{name}.txt",)), bpe), tmp_path / name, Layout(), validation=0.3
        )
        backend = tokenizers.load(bpe).backend
        sides.append({backend.decode(each.ids) for each in read(tmp_path / f"{name}-validation")})
    assert sides[0] == sides[1]
    assert 15 < len(sides[0]) < 45


def test_processes_give_the_same_bytes(alpaca, bpe, tmp_path):
    task = Tokenization(Input((alpaca,)), bpe, "vicuna")
    facts = [
        tokenize(task, tmp_path / f"{workers}.jsonl", Layout(512, "records", None, 1), workers=workers)
        for workers in (1, 2)
    ]
    assert (tmp_path / "1.jsonl").read_bytes() == (tmp_path / "2.jsonl").read_bytes()
    assert facts[0]["tokens"] == facts[1]["tokens"]


def test_a_dry_run_has_the_statistics_and_writes_nothing(alpaca, bpe, tmp_path):
    task = Tokenization(Input((alpaca,)), bpe, "vicuna")
    layout = Layout(512, "records")
    dry = tokenize(task, tmp_path / "x.parquet", layout, padded=True, dry_run=True)
    assert not any(tmp_path.iterdir())
    assert dry == tokenize(task, tmp_path / "x.parquet", layout, padded=True)
    assert 0.9 < dry["files"]["x.parquet"]["filled"] <= 1


def test_inspect_marks_what_is_trained(alpaca, bpe, tmp_path):
    tokenize(
        Tokenization(Input((alpaca,)), bpe, "vicuna"), tmp_path / "x.mindrecord", Layout(300), padded=True
    )
    facts, shown = inspect(Input((tmp_path / "x.mindrecord",)), 3, bpe, "")
    assert (facts["samples"], facts["records"], facts["format"]) == (300, 300, "mindrecord")
    for each, row in zip(shown, rows(3), strict=True):
        assert [part.trained for part in each.parts] == [False, True]
        assert each.parts[1].text == f" {row['output']}</s>"
    numbers = inspect(Input((tmp_path / "x.mindrecord",)), 1, None, "")[1]
    assert numbers[0].parts[0].text.startswith("1 ")
    facts, shown = inspect(Input((alpaca,)), 1, bpe, "vicuna")
    assert facts["rows"] == 300
    assert [part.trained for part in shown[0].parts] == [False, True]
    assert shown[0].parts[1].text == f" {rows(1)[0]['output']}</s>"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"padded": True}, "--pad and --pack need --seq-length"),
        ({"template": ""}, "no chat template; give --template"),
        ({"tokenizer": "nothing"}, "no tokenizer"),
        ({"append_eos": True, "tokenizer": "bare"}, "--append-eos: .*has no eos_token"),
        ({"prepend_bos": True, "tokenizer": "bare"}, "--prepend-bos: .*has no bos_token"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message, alpaca, bpe, tmp_path):
    (tmp_path / "nothing").mkdir()
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "tokenizer.json").write_bytes((bpe / "tokenizer.json").read_bytes())
    path = tmp_path / options["tokenizer"] if "tokenizer" in options else bpe
    template = options.get("template", "llama-3")
    framed = {name: options.get(name, False) for name in ("append_eos", "prepend_bos")}
    task = Tokenization(Input((alpaca,)), path, template, **framed)
    with pytest.raises(DataError, match=message):
        tokenize(task, tmp_path / "x.jsonl", Layout(), padded=options.get("padded", False))
    assert not list(tmp_path.glob("*x.jsonl*"))
