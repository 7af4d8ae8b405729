"""The commands: examples of their help, reports, and faults, after which sources and old outputs are untouched."""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from isthmus_common.application import app
from isthmus_formats.data import work as works
from isthmus_formats.data.convert import convert
from isthmus_formats.data.packing import Layout
from isthmus_formats.data.records import DataError
from isthmus_formats.data.run import Input
from isthmus_formats.data.tokenize import Tokenization, tokenize
from tests.data.conftest import rows
from tests.data.test_sources import write


def run(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["data", *map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_from_alpaca_to_megatron(alpaca, tmp_path):
    talks = tmp_path / "talks.json"
    assert run("convert", alpaca, "--from", "alpaca-mindformers", "-o", talks, "--workers", 1)[0] == 0
    assert (
        run("train-tokenizer", talks, "--vocab-size", 400, "--template", "vicuna", "-o", tmp_path / "tok")[0]
        == 0
    )
    status, output, _ = run(
        "tokenize", talks, "--tokenizer", tmp_path / "tok", "--workers", 1, "-o", tmp_path / "corpus", "--json"
    )  # fmt: skip
    assert (status, json.loads(output)["records"]) == (0, 300)
    status, output, _ = run("inspect", tmp_path / "corpus", "--tokenizer", tmp_path / "tok", "-n", 2)
    assert "samples\t300\n" in output
    assert f"⟦ {rows(2)[1]['output']}</s>⟧" in output
    assert json.loads(run("inspect", alpaca, "--json")[1])["form"] == "alpaca"


@pytest.mark.parametrize("verb", ["convert", "tokenize", "inspect", "train-tokenizer"])
def test_the_help_has_an_example_that_parses(verb):
    status, output, _ = run(verb, "--help")
    example = " ".join(output.split("Example:")[1].split("Arguments")[0].split()).split()
    assert (status, example[:3]) == (0, ["isthmus", "data", verb])
    status, _, errors = run(*example[2:])
    assert status == 1  # the files do not exist
    assert "no such file" in errors


@pytest.mark.parametrize(
    ("words", "message", "status"),
    [
        ("convert {} -o x.csv", "x.csv: unknown suffix '.csv'; expected .json", 2),
        ("convert {} -o x.txt", "a text file has no conversations", 2),
        ("convert {} --from what -o x.json", "--from what: unknown form; expected alpaca", 2),
        ("convert {} -o {}", "also an input; give another output", 2),
        ("tokenize {} --tokenizer x --pack all -o x", "--pack all: expected records", 2),
        ("tokenize {} --tokenizer x --pack records -o x", "--pad and --pack need --seq-length", 2),
        (
            "tokenize {} --tokenizer x -o x.csv",
            "unknown suffix '.csv'; expected .mindrecord, .safetensors",
            2,
        ),
        ("tokenize {} --tokenizer x -o .", ".: a folder; give the name of a file", 2),
        ("tokenize {} --tokenizer x --to parquet -o x.jsonl", "'.jsonl'; expected .parquet, or none", 2),
        (
            "tokenize {} --tokenizer {bpe} --template x -o x",
            "x: No such file or directory; expected alpaca",
            2,
        ),
        ("tokenize {} --tokenizer {bpe} --template vicuna --seq-length 999 --pad -o x", "leave out --pad", 2),
        ("convert {} --from text -o x.json", "row 1: no field 'text'; correct it, or skip", 1),
        ("convert {} -o none/x.json", "no such folder: none; create it with mkdir -p", 1),
        ("convert {} -o /proc/x.json", "No such file or directory; give an output in another folder", 1),
        ("convert {} -o folder.json", "folder.json: already exists; delete it or give another output", 1),
        ("inspect none.mindrecord", "none.mindrecord: no such file", 1),
    ],
)
def test_wrong_usage_is_one_line(words, message, status, alpaca, bpe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.json").mkdir()
    copy = str(shutil.copy(alpaca, tmp_path / "alpaca.json"))
    found, _, errors = run(*words.replace("{}", copy).replace("{bpe}", str(bpe)).split())
    assert (found, message in errors, errors.count("\n")) == (status, True, 1), errors
    assert content(tmp_path) == {"alpaca.json": alpaca.read_bytes()}


def test_invalid_rows_are_skipped_when_asked(tmp_path):
    path, target = tmp_path / "x.jsonl", tmp_path / "y.jsonl"
    path.write_bytes(b'{"text": "a", "source": 1}\n{"text": \xff}\n{"txt": 1}\n{"text": "b"}\n')
    status, _, errors = run("convert", path, "--workers", 1, "-o", target)
    assert (status, target.exists()) == (1, False)
    assert "x.jsonl: row 2: invalid UTF-8 (byte 0xff at 9 of the line)" in errors
    status, output, _ = run("convert", path, "--skip-invalid", "--workers", 1, "-o", target, "--json")
    facts = json.loads(output)
    assert (facts["records"], facts["invalid"], facts["dropped field source"]) == (2, 2, 1)
    assert target.read_text() == '{"text": "a"}\n{"text": "b"}\n'
    listed = [json.loads(line) for line in (tmp_path / "y.jsonl.issues.jsonl").read_text().splitlines()]
    assert [each["record"] for each in listed] == [1, 2]
    path.write_bytes(b'{"text": "a"}\n')
    target.unlink()
    assert run("convert", path, "--workers", 1, "-o", target)[0] == 0
    assert sorted(content(tmp_path)) == ["x.jsonl", "y.jsonl"]  # the list of the earlier run is gone


@pytest.mark.parametrize(
    ("form", "name"),
    [("messages", "y.parquet"), ("sharegpt", "y.parquet"), ("alpaca", "y.parquet"), ("alpaca", "y.jsonl")],
)
def test_files_and_forms_convert_and_come_back(form, name, alpaca, tmp_path):
    status, _, _ = run("convert", alpaca, "--to", form, "--workers", 1, "-o", tmp_path / name)
    assert status == 0
    status, _, _ = run(
        "convert", tmp_path / name, "--to", "alpaca", "--workers", 1, "-o", tmp_path / "z.json"
    )
    assert status == 0
    assert json.loads((tmp_path / "z.json").read_text()) == rows(300)


@pytest.mark.parametrize("umask", [0, 0o077])
def test_modes_do_not_depend_on_the_umask(umask, alpaca, bpe, tmp_path):
    before = os.umask(umask)
    try:
        tokenize(Tokenization(Input((alpaca,)), bpe, "vicuna"), tmp_path / "x", Layout(160))
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o640}


# ---- Faults --------------------------------------------------------------------------------------------


class _Stopped(BaseException):
    """The end of a process at any point."""


def stop_at(monkeypatch, number: int) -> None:
    """End the run when it notes its progress for the n-th time; save the state before every other time."""
    calls = iter(range(1000))
    advance = works.Work.advance

    def interrupted(self, *arguments):
        if next(calls) == number:
            raise _Stopped
        advance(self, *arguments)

    monkeypatch.setattr(works.Work, "advance", interrupted)
    monkeypatch.setattr(works, "_SAVE_S", 0 if number % 2 else 1e9)


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("name", ["y.json", "y.parquet"])
def test_a_stopped_conversion_goes_on(number, name, tmp_path, monkeypatch):
    source, target = tmp_path / "x.json", tmp_path / name
    source.write_text(json.dumps(rows(1200)))
    given = Input((source,))
    convert(given, tmp_path / f"whole-{name}", "", 1)
    with monkeypatch.context() as patch:
        stop_at(patch, number)
        with pytest.raises(_Stopped):
            convert(given, target, "", 1)
    assert not target.exists()
    facts = convert(given, target, "", 1)
    assert target.read_bytes() == (tmp_path / f"whole-{name}").read_bytes()
    assert facts["rows"] == 1200
    assert sorted(content(tmp_path)) == sorted(["x.json", name, f"whole-{name}"])
    assert not target.with_name(f".{name}.isthmus-work").exists()


def test_a_stopped_tokenization_goes_on_unless_something_changed(alpaca, bpe, tmp_path, monkeypatch):
    source = tmp_path / "x.json"
    source.write_text(json.dumps(rows(1200)))
    task = Tokenization(Input((source,)), bpe, "vicuna")
    tokenize(task, tmp_path / "whole.jsonl", Layout(160))
    for change in (False, True):
        with monkeypatch.context() as patch:
            stop_at(patch, 3)
            with pytest.raises(_Stopped):
                tokenize(task, tmp_path / "y.jsonl", Layout(160))
        assert (
            json.loads((tmp_path / ".y.jsonl.isthmus-work" / "state.json").read_text())["position"][3] == 768
        )
        if change:
            source.write_text(json.dumps(rows(1200), indent=1))
        tokenize(task, tmp_path / "y.jsonl", Layout(160))
        for suffix in ("", ".issues.jsonl"):
            assert (tmp_path / f"y.jsonl{suffix}").read_bytes() == (
                tmp_path / f"whole.jsonl{suffix}"
            ).read_bytes()
        (tmp_path / "y.jsonl").unlink()


@pytest.mark.parametrize(
    "name", ["y.json", "y.parquet", "y", "y.mindrecord", "z.safetensors", "z.parquet", "z.jsonl"]
)
def test_a_file_that_cannot_grow_is_one_line_and_leaves_no_output(name, alpaca, bpe, tmp_path):
    """With a limit on the size of files, as on a full disk."""
    target = tmp_path / name
    task = Tokenization(Input((alpaca,)), bpe, "vicuna")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    sizes = {"y.json": 40_000, "y.parquet": 20_000, "y.mindrecord": 1 << 24, "z.jsonl": 400_000}
    resource.setrlimit(resource.RLIMIT_FSIZE, (sizes.get(name, 100_000), before[1]))
    try:
        with pytest.raises(DataError, match=f"{target}.*: .*(File too large|disk)") as caught:
            if name in ("y.json", "y.parquet"):
                convert(Input((alpaca,)), target, "", 1)
            else:
                tokenize(task, target, Layout())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(caught.value)
    assert not content(tmp_path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("[]", "no records in 0 rows"),
        ('[{"text": null}]', "no records in 1 row"),
        ('[{"text": ""}, {"text": ""}]', "no token is trained on: 2 records, all masked"),
    ],
)
def test_data_without_records_or_trained_tokens_is_an_error(rows, message, bpe, tmp_path, monkeypatch):
    monkeypatch.setattr(works, "_SAVE_S", 0)
    source = tmp_path / "x.json"
    source.write_text(rows)
    words = [source, "--from", "text", "--skip-invalid", "--workers", 1]
    for dry in ([], ["--dry-run"]):
        status, _, errors = run("tokenize", *words, "--tokenizer", bpe, "-o", tmp_path / "y", *dry)
        assert (status, errors) == (1, f"isthmus: {source}: {message}\n")
    if "no records" in message:
        assert run("convert", *words, "-o", tmp_path / "y.json")[0] == 1
        assert "no text in" in run("train-tokenizer", *words[:-2], "-o", tmp_path / "tok")[2]
    assert list(tmp_path.iterdir()) == [source]


def test_inspect_counts_the_rows_of_empty_files(tmp_path):
    write(tmp_path / "x.parquet", [{"text": "a"}])
    table = parquet.read_table(tmp_path / "x.parquet")
    parquet.write_table(table.slice(1), tmp_path / "x.parquet")
    assert "rows\t0\n" in run("inspect", tmp_path / "x.parquet")[1]


def test_a_vocabulary_smaller_than_asked_is_reported(alpaca, bpe, tmp_path):
    assert not run("train-tokenizer", alpaca, "--vocab-size", 300, "-o", tmp_path / "small")[2]
    status, output, errors = run("train-tokenizer", alpaca, "--vocab-size", 9000, "-o", tmp_path / "tok")
    count = int(output.split("vocabulary\t")[1].split()[0].replace(",", ""))
    assert (status, f"tok: {count} tokens instead of 9000" in errors) == (0, True)


@pytest.mark.parametrize("file", ["y.mindrecord", "y.mindrecord.db", "y-validation.mindrecord"])
def test_outputs_are_not_replaced(file, alpaca, bpe, tmp_path):
    (tmp_path / file).symlink_to("nothing")
    words = ["--tokenizer", bpe, "--template", "vicuna", "--validation", 0.1, "-o", tmp_path / "y.mindrecord"]
    status, _, errors = run("tokenize", alpaca, *words)
    assert (status, f"{file}: already exists; delete it" in errors) == (1, True)
    assert [path.name for path in tmp_path.iterdir()] == [file]
    assert run("tokenize", alpaca, *words, "--dry-run")[0] == 0


def test_a_run_stopped_between_its_files_goes_on(alpaca, bpe, tmp_path, monkeypatch):
    options = "--template vicuna --workers 1 -o"
    words = ["tokenize", alpaca, "--tokenizer", bpe, *options.split(), tmp_path / "y"]
    replace = Path.replace
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda path, to: _stop() if to.name == "y.idx" else replace(path, to))
        with pytest.raises(_Stopped):
            run(*words)
    assert "y.bin" in content(tmp_path) and "y.idx" not in content(tmp_path)
    assert run(*words)[0] == 0
    assert sorted(content(tmp_path)) == ["y.bin", "y.idx", "y_mask.bin", "y_mask.idx"]
    assert len(list_of(tmp_path / "y")) == 300


def _stop() -> None:
    raise _Stopped


def test_an_interrupted_run_is_one_line_and_goes_on(alpaca, tmp_path, monkeypatch):
    def interrupted(self, *_):
        self.save()
        raise KeyboardInterrupt

    words = ["convert", alpaca, "--workers", 1, "-o", tmp_path / "x.json"]
    with monkeypatch.context() as patch:
        patch.setattr(works.Work, "advance", interrupted)
        status, _, errors = run(*words)
    assert (status, errors, content(tmp_path)) == (
        130,
        "isthmus: interrupted; repeat the command to continue\n",
        {},
    )
    assert run(*words)[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.json"]


def test_two_runs_do_not_write_one_output(alpaca, tmp_path):
    with works.work(tmp_path / "x.json", {}, False):
        with pytest.raises(DataError, match="another run is writing the same output"):
            convert(Input((alpaca,)), tmp_path / "x.json", "", 1)
        assert (tmp_path / ".x.json.isthmus-work" / "lock").exists()


@pytest.mark.slow
def test_a_process_killed_at_random_points_goes_on(alpaca, bpe, tmp_path):
    source = tmp_path / "x.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows(5000)))
    before = source.read_bytes()
    command = f"-m isthmus data tokenize {source} --tokenizer {bpe} --template vicuna --seq-length 400 --pack records"
    words = [sys.executable, *command.split(), "--shuffle", "1", "-o"]
    subprocess.run([*words, tmp_path / "whole.mindrecord"], check=True, capture_output=True)
    killed = attempt = 0
    while not (tmp_path / "y.mindrecord").exists():
        process = subprocess.Popen(
            [*words, tmp_path / "y.mindrecord"], stderr=subprocess.PIPE, start_new_session=True
        )
        attempt += 1
        time.sleep(random.Random(attempt).uniform(0.5, attempt))  # later and later, to the end
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            killed += 1
        process.wait()
        assert source.read_bytes() == before
    assert killed
    whole, found = (list_of(tmp_path / f"{name}.mindrecord") for name in ("whole", "y"))
    assert found == whole


def list_of(path: Path) -> list:
    from isthmus_formats.data import formats

    return [(each.ids.tolist(), each.labels().tolist(), each.lengths.tolist()) for each in formats.read(path)]
