"""Converted lines are written as the project writes its source; other lines keep their bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isthmus_common.application import app
from isthmus_migrate.convert import style

LONG = "total_of_all_batches = the_first_function(the_model.cuda(), another_argument_of_the_call, number)\n"
SOURCE = f"import torch\nugly   =  {{ 'a':1 }}\n\n\n\n{LONG}"


def project(folder: Path, source: str = SOURCE, **files: str) -> Path:
    for name, text in files.items():
        (
            folder / {"pyproject": "pyproject.toml", "hooks": ".pre-commit-config.yaml"}.get(name, name)
        ).write_text(text)
    (folder / "train.py").write_text(source)
    return folder / "train.py"


def convert(file: Path) -> tuple[str, str]:
    result = CliRunner().invoke(app, ["migrate", "convert", "--write", str(file)])
    assert result.exit_code == 0, result.output
    return file.read_text(), result.stderr


def test_without_a_formatter_nothing_is_wrapped_and_nothing_is_said(tmp_path: Path) -> None:
    text, said = convert(project(tmp_path))
    assert LONG.replace(".cuda()", ".to(DEVICE)") in text
    assert "ugly   =  { 'a':1 }\n\n\n\n" in text
    assert "format" not in said


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject": "[tool.ruff.format]\n[tool.ruff]\nline-length = 60\n"},
        {"hooks": "repos:\n- hooks:\n  - id: ruff-format\n", "ruff.toml": "line-length = 60\n"},
    ],
    ids=["table", "hook"],
)
def test_ruff_formats_the_changed_lines_only(tmp_path: Path, files: dict[str, str]) -> None:
    text, said = convert(project(tmp_path, **files))
    assert "ugly   =  { 'a':1 }\n\n\n\n" in text
    assert "total_of_all_batches = the_first_function(\n    the_model.to(DEVICE),\n" in text
    assert text.startswith(
        "import torch\n\nDEVICE = torch.accelerator.current_accelerator(\n    check_available"
    )
    assert said.endswith("needs PyTorch 2.7\n")
    assert "0 files changed" in convert(tmp_path / "train.py")[1]


@pytest.mark.skipif(not shutil.which("black"), reason="black is not installed")
def test_black_formats_the_changed_lines_only(tmp_path: Path) -> None:
    text, _ = convert(project(tmp_path, pyproject="[tool.black]\nline-length = 60\n"))
    assert "ugly   =  { 'a':1 }\n\n\n\n" in text
    assert "total_of_all_batches = the_first_function(\n    the_model.to(DEVICE),\n" in text


def test_a_formatter_that_is_not_installed_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(style, "_installed_version", lambda formatter: "")
    text, said = convert(project(tmp_path, pyproject="[tool.black]\n"))
    assert LONG.replace(".cuda()", ".to(DEVICE)") in text
    assert said.splitlines()[0] == (
        "isthmus: pyproject.toml configures black, which is not installed: changed lines are not formatted; "
        "run `pip install black`"
    )
    assert "not installed" not in convert(tmp_path / "train.py")[1], "nothing changes, so nothing is said"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("setup.cfg", "[flake8]\nmax-line-length = 95\n"),
        ("pyproject.toml", "[tool.ruff]\nline-length = 95\n"),
    ],
)
def test_lines_that_become_too_long_without_a_formatter_are_one_line(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    source = f"import torch\n\n{LONG}short = x.cuda()\n# {'-' * 120}\n"
    assert (
        f"isthmus: {name} allows 95 characters a line: wrap train.py:5\n"
        in convert(project(tmp_path, source))[1]
    )
    assert "wrap" not in convert(tmp_path / "train.py")[1], "nothing changes, so nothing is said"


@pytest.mark.parametrize(
    ("name", "text", "quote"),
    [
        ("pyproject.toml", '[tool.ruff.format]\nquote-style = "single"\n', "'"),
        ("pyproject.toml", '[tool.ruff.lint.flake8-quotes]\ninline-quotes = "single"\n', "'"),
        ("pyproject.toml", "[tool.black]\n", '"'),
        ("pyproject.toml", "[tool.black]\nskip-string-normalization = true\n", ""),
        ("setup.cfg", "[flake8]\ninline-quotes = '\n", "'"),
        (".flake8", "[flake8]\ninline-quotes = double\n", '"'),
        ("setup.cfg", "[flake8\n", ""),
        ("pyproject.toml", "[tool.ruff\n", ""),
    ],
)
def test_the_configured_quotation_mark(tmp_path: Path, name: str, text: str, quote: str) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "package").mkdir()
    assert style.find_style(tmp_path / "package").quote == quote


def test_new_strings_have_the_configured_quotation_mark(tmp_path: Path) -> None:
    source = 'import torch\nx = "a", "b"\nif y.is_cuda:\n    z.cuda()\n'
    (tmp_path / ".flake8").write_text("[flake8]\ninline-quotes = single\n")
    text, _ = convert(project(tmp_path, source))
    assert "or torch.device('cpu')\n" in text
    assert "if y.device.type != 'cpu':\n" in text
    once = text
    assert convert(tmp_path / "train.py")[0] == once


def test_the_configuration_of_a_folder_above_a_repository_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.black]\n")
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    assert style.find_style(tmp_path / "repository") == style.NO_STYLE
