"""Malformed files: each command ends with one line that names the file, and writes nothing."""

import json
import os
import random
import shutil
import struct
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isthmus_common.application import app
from isthmus_formats.data import tokenizers

CONTENTS = {
    "empty": b"",
    "zeros": bytes(64),
    "garbage": random.Random(0).randbytes(500),
    "latin-1": b'{"text": "\xff"}\n',
    "list": b"[1, 2]\n",
    "null": b"null\n",
    "number": b"3",
    "deep": b"[" * 100_000,
    "object": b'{"a": 1}',
    "not numbers": b'{"input_ids": "abc", "labels": {"a": 1}}\n',
    "not a number": b'{"input_ids": [NaN]}\n',
    "zip": b"PK\x03\x04" + bytes(60),
    "huge header": struct.pack("<Q", 2**63 - 1) + b"{}",
    "short header": struct.pack("<Q", 2) + b"{}" + bytes(50),
    "list as header": struct.pack("<Q", 2) + b"[]" + bytes(50),
}
SUFFIXES = [
    ".json",
    ".jsonl",
    ".parquet",
    ".arrow",
    ".txt",
    ".mindrecord",
    ".safetensors",
    ".idx",
    ".bin",
    ".db",
    "",
]


def one_line(*words: object, allowed: bool = False) -> str:
    """Run a command; check that it ends with one line and status 1 or 2, or well if that is allowed."""
    result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exception is None or isinstance(result.exception, SystemExit), (words, result.exception)
    if allowed and result.exit_code == 0:
        return ""
    assert result.exit_code in (1, 2), words
    assert result.stderr.startswith("isthmus: ") and result.stderr.count("\n") == 1, (words, result.stderr)
    return result.stderr


def malformed(folder: Path, suffix: str) -> list[Path]:
    """Return some malformed files of a suffix, and what is no file: folders and links."""
    files = []
    for name in random.Random(suffix).sample(sorted(CONTENTS), 4):
        files.append(folder / f"{name}{suffix}")
        files[-1].write_bytes(CONTENTS[name])
    (folder / f"folder{suffix}").mkdir()
    (folder / f"full{suffix}").mkdir()
    (folder / f"full{suffix}" / f"x{suffix or '.arrow'}").write_bytes(b"x" * 100)
    (folder / f"loop{suffix}").symlink_to(f"loop{suffix}")
    (folder / f"dangling{suffix}").symlink_to("nothing")
    return [*files, *(folder / f"{name}{suffix}" for name in ("folder", "full", "loop", "dangling"))]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_malformed_data_set_is_one_line(suffix, pieces, tmp_path):
    given, made = tmp_path / "given", tmp_path / "made"
    given.mkdir()
    made.mkdir()
    for path in malformed(given, suffix):
        # Any line of text is a text, and an array may be empty.
        allowed = suffix in (".txt", ".json", ".jsonl")
        one_line("data", "inspect", path, "-n", 2, allowed=allowed)
        one_line("data", "inspect", path, "--tokenizer", pieces, "--template", "vicuna", allowed=allowed)
        one_line("data", "convert", path, "-o", made / "x.parquet", "--workers", 1, allowed=suffix == ".txt")
        options = ("--tokenizer", pieces, "--template", "vicuna", "--workers", 1)
        one_line("data", "tokenize", path, *options, "-o", made / "x", allowed=suffix == ".txt")
        if suffix != ".txt":
            one_line("data", "train-tokenizer", path, "-o", made / "tokenizer")
            assert not list(made.iterdir()), path
        shutil.rmtree(made)
        made.mkdir()


@pytest.mark.parametrize("suffix", [".json", ".model", ".jinja", ""])
def test_a_malformed_tokenizer_or_template_is_one_line(suffix, pieces, tmp_path):
    given, made, good = tmp_path / "given", tmp_path / "made", tmp_path / "good.jsonl"
    given.mkdir()
    made.mkdir()
    good.write_text(json.dumps({"messages": [{"role": "user", "content": "a"}]}) + "\n")
    for path in malformed(given, suffix):
        output = ("--workers", 1, "-o", made / "x.jsonl")
        one_line("data", "tokenize", good, "--tokenizer", path, "--template", "chatml", *output)
        one_line("data", "inspect", good, "--tokenizer", path, "--template", "chatml")
        one_line("data", "tokenize", good, "--tokenizer", pieces, "--template", path, *output)
        assert not list(made.iterdir()), path
    tokenizers.load.cache_clear()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer_config.json", b"[]", "a list instead of an object"),
        ("tokenizer_config.json", b"{", "cannot be read: "),
        ("tokenizer_config.json", b"\xff", "cannot be read: "),
        ("tokenizer_config.json", b'{"eos_token": 3}', "eos_token is not a text"),
        ("tokenizer_config.json", b'{"eos_token": {"id": 3}}', "eos_token is not a text"),
        ("tokenizer_config.json", b'{"chat_template": 3}', "chat_template is a int, not a text"),
        ("tokenizer_config.json", b'{"chat_template": [3]}', "no chat template"),
        ("tokenizer_config.json", b'{"chat_template": "{% for"}', "template of the tokenizer: line 1"),
        ("chat_template.jinja", b"\xff", "cannot be read: "),
    ],
)
def test_malformed_settings_of_a_tokenizer_are_one_line(name, content, message, pieces, tmp_path):
    folder, good = tmp_path / "tokenizer", tmp_path / "good.jsonl"
    shutil.copytree(pieces, folder)
    (folder / "tokenizer_config.json").unlink()
    (folder / name).write_bytes(content)
    good.write_text(json.dumps({"messages": [{"role": "user", "content": "a"}]}) + "\n")
    line = one_line(
        "data", "tokenize", good, "--tokenizer", folder, "--workers", 1, "-o", tmp_path / "x.jsonl"
    )
    assert message in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good.jsonl", "tokenizer"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_without_permission_is_one_line(suffix, tmp_path):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(b"{}")
    path.chmod(0)
    assert "ermission denied" in one_line("data", "inspect", path)
    assert "ermission denied" in one_line("data", "inspect", path / "x")
