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
from typer.testing import CliRunner

from isthmus.cli import app
from isthmus.data import work as works
from isthmus.data.convert import convert
from isthmus.data.packing import Layout
from isthmus.data.records import DataError
from isthmus.data.run import Input
from isthmus.data.tokenize import Tokenization, tokenize
from tests.data.conftest import rows


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
    ("words", "message"),
    [
        (["convert", "{}", "-o", "x.csv"], "x.csv: unknown suffix '.csv'; expected .json"),
        (["convert", "{}", "-o", "x.txt"], "a text file has no conversations"),
        (["convert", "{}", "--from", "what", "-o", "x.json"], "--from what: unknown form; expected alpaca"),
        (["convert", "{}", "--from", "text", "-o", "x.json"], "row 1: no field 'text'; correct it, or skip"),
        (["convert", "{}", "-o", "{}"], "also an input; give another output"),
        (["convert", "{}", "-o", "none/x.json"], "no such folder: none"),
        (["tokenize", "{}", "--tokenizer", "x", "--pack", "all", "-o", "x"], "--pack all: expected records"),
        (["inspect", "none.mindrecord"], "none.mindrecord: no such file"),
    ],
)
def test_wrong_usage_is_one_line(words, message, alpaca, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copy = shutil.copy(alpaca, tmp_path / "alpaca.json")
    status, _, errors = run(*[word.format(copy) for word in words])
    assert status in (1, 2)
    assert message in errors
    assert errors.count("\n") == 1
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


def test_modes_do_not_depend_on_the_umask(alpaca, bpe, tmp_path):
    before = os.umask(0)
    try:
        tokenize(Tokenization(Input((alpaca,)), bpe, "vicuna"), tmp_path / "x", Layout(20))
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
    tokenize(task, tmp_path / "whole.jsonl", Layout(64))
    for change in (False, True):
        with monkeypatch.context() as patch:
            stop_at(patch, 3)
            with pytest.raises(_Stopped):
                tokenize(task, tmp_path / "y.jsonl", Layout(64))
        assert (
            json.loads((tmp_path / ".y.jsonl.isthmus-work" / "state.json").read_text())["position"][3] == 768
        )
        if change:
            source.write_text(json.dumps(rows(1200), indent=1))
        tokenize(task, tmp_path / "y.jsonl", Layout(64))
        for suffix in ("", ".issues.jsonl"):
            assert (tmp_path / f"y.jsonl{suffix}").read_bytes() == (
                tmp_path / f"whole.jsonl{suffix}"
            ).read_bytes()


@pytest.mark.parametrize(
    "name", ["y.json", "y.parquet", "y", "y.mindrecord", "z.safetensors", "z.parquet", "z.jsonl"]
)
def test_a_file_that_cannot_grow_is_one_line_and_leaves_the_old_output(name, alpaca, bpe, tmp_path):
    """With a limit on the size of files, as on a full disk."""
    target = tmp_path / name
    target.write_text("old")
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
    assert content(tmp_path) == {target.name: b"old"}


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
    from isthmus.data import formats

    return [(each.ids.tolist(), each.labels().tolist(), each.lengths.tolist()) for each in formats.read(path)]
