"""Source style of a project: its quotation marks, and its formatter, which is run on changed lines only."""

from __future__ import annotations

import ast
import configparser
import difflib
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from isthmus_migrate.source.notebooks import parse

_HOOKS = {"black": "black", "black-jupyter": "black", "ruff-format": "ruff"}
_QUOTES = {"single": "'", "double": '"'}


class Style(NamedTuple):
    """The style of a project's source.

    Attributes:
        quote: configured quotation mark, or "".
        formatter: configured formatter, ``"black"`` or ``"ruff"``, or "".
        command: path of the formatter; "" if it is not installed.
        configured: name of the file that configures the formatter.
        width: configured number of characters of a line; 0 for none.
        measured: name of the file that configures it.
    """

    quote: str = ""
    formatter: str = ""
    command: str = ""
    configured: str = ""
    width: int = 0
    measured: str = ""

    @property
    def problem(self) -> str:
        """The reason why changed lines are not formatted, in one line, or ""."""
        if not self.formatter or self.command:
            return ""
        return (
            f"{self.configured} configures {self.formatter}, which is not installed: "
            f"changed lines are not formatted; run `pip install {self.formatter}`"
        )

    def too_long(self, name: str, before: str, after: str) -> list[str]:
        """Return the places of changed lines, ``"train.py:12"``, that are too long and not formatted."""
        if not self.width or self.formatter:
            return []
        lines = after.split("\n")
        changed = (line for first, last in _changed_lines(before, after) for line in range(first, last + 1))
        return [f"{name}:{line}" for line in changed if len(lines[line - 1].rstrip("\r")) > self.width]


NO_STYLE = Style()


def find_style(folder: Path) -> Style:
    """Return the style that the nearest folder with a configuration, from this one upwards, asks for."""
    folder = folder.resolve()
    quote, width = "", (0, "")
    for each in (folder, *folder.parents):
        tables = _tables(each)
        quote = quote or _quote(each, tables)
        width = width if width[0] else _width(each, tables)
        for formatter, file in _formatters(each, tables):
            return Style(quote, formatter, _installed_version(formatter), file, *width)
        if tables or (each / ".git").exists():
            break
    return Style(quote, "", "", "", *width)


def format_changes(before: str, after: str, path: Path, style: Style) -> str:
    """Return converted source whose changed lines are as the project's formatter writes them.

    Args:
        before: the original source.
        after: the converted source.
        path: of the file; the formatter finds its configuration by it.
        style: of the project.
    """
    text = after
    if not style.command:
        return text
    changed = list(_changed_lines(before, after))
    for spans in [changed] if style.formatter == "black" else [[each] for each in reversed(changed)]:
        new = _format_within(text, _run(style, spans, text, path), spans)
        text = new if _differs_in_layout_only(text, new) else text
    return text


def _changed_lines(before: str, after: str) -> Iterator[tuple[int, int]]:
    """Yield the first and last line of each changed part of the new text, from 1."""
    matcher = difflib.SequenceMatcher(None, before.split("\n"), after.split("\n"), autojunk=False)
    for tag, _, _, start, end in matcher.get_opcodes():
        if tag != "equal" and end > start:
            yield start + 1, end


def _format_within(text: str, new: str, spans: Sequence[tuple[int, int]]) -> str:
    """Return the formatter's text for changed lines, and the old one for the others and for blank lines between."""
    old_lines, new_lines = text.split("\n"), new.split("\n")
    old, made = (
        [place for place, line in enumerate(each) if line.strip()] for each in (old_lines, new_lines)
    )
    matcher = difflib.SequenceMatcher(
        None, [old_lines[each] for each in old], [new_lines[each] for each in made], autojunk=False
    )
    for tag, start, end, new_start, new_end in reversed(matcher.get_opcodes()):
        inside = [first <= old[each] + 1 <= last for each in range(start, end) for first, last in spans]
        if tag == "replace" and any(inside):
            lines = new_lines[made[new_start] : made[new_end - 1] + 1]
            old_lines[old[start] : old[end - 1] + 1] = lines
    return "\n".join(old_lines)


def _run(style: Style, spans: Sequence[tuple[int, int]], text: str, path: Path) -> str:
    """Return what the formatter makes of some lines; the text itself if it fails."""
    options = ["--quiet", "--stdin-filename", str(path), "-"]
    if style.formatter == "black":
        command = [style.command, *(f"--line-ranges={first}-{last}" for first, last in spans), *options]
    else:
        command = [
            style.command,
            "format",
            *(f"--range={first}-{last + 1}" for first, last in spans),
            *options,
        ]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    return done.stdout.decode(errors="replace") if done.returncode == 0 else text


def _differs_in_layout_only(text: str, new: str) -> bool:
    """Whether two sources differ in their layout only."""
    try:
        return ast.dump(parse(text)) == ast.dump(parse(new))
    except SyntaxError:
        return False


def _tables(folder: Path) -> Mapping[str, Any]:
    """Return the tools' tables of pyproject.toml and ruff.toml."""
    tools: dict[str, Any] = dict(_toml(folder / "pyproject.toml").get("tool", {}))
    for name in ("ruff.toml", ".ruff.toml"):
        if found := _toml(folder / name):
            tools["ruff"] = {**found, "file": name}
    return tools


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def _formatters(folder: Path, tables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the configured formatters, each with the file that names it."""
    if "black" in tables:
        yield "black", "pyproject.toml"
    if "format" in tables.get("ruff", {}):
        yield "ruff", tables["ruff"].get("file", "pyproject.toml")
    hooks = folder / ".pre-commit-config.yaml"
    if hooks.is_file():
        for name in re.findall(r"^\s*-\s*id:\s*([\w-]+)", hooks.read_text(errors="replace"), re.MULTILINE):
            if name in _HOOKS:
                yield _HOOKS[name], hooks.name


def _quote(folder: Path, tables: Mapping[str, Any]) -> str:
    """Return the configured quotation mark, or ""."""
    ruff = tables.get("ruff", {})
    asked = ruff.get("format", {}).get("quote-style", "")
    lint = {**ruff, **ruff.get("lint", {})}.get("flake8-quotes", {})
    asked = asked or lint.get("inline-quotes", "") or _ini(folder, "inline-quotes")[0]
    if not asked and "black" in tables and not tables["black"].get("skip-string-normalization"):
        asked = "double"
    return _QUOTES.get(asked, asked if asked in ("'", '"') else "")


def _width(folder: Path, tables: Mapping[str, Any]) -> tuple[int, str]:
    """Return the configured length of lines, and the file that configures it; 0 for none."""
    ruff = tables.get("ruff", {})
    if isinstance(ruff.get("line-length"), int):
        return ruff["line-length"], ruff.get("file", "pyproject.toml")
    asked, file = _ini(folder, "max-line-length")
    return (int(asked), file) if asked.isdigit() else (0, "")


def _ini(folder: Path, key: str) -> tuple[str, str]:
    """Return an option of flake8, and the file that sets it; "" for none."""
    for name in ("setup.cfg", "tox.ini", ".flake8"):
        found = configparser.ConfigParser(interpolation=None)
        try:
            found.read(folder / name)
            return found.get("flake8", key), name
        except (configparser.Error, UnicodeDecodeError):
            continue
    return "", ""


def _installed_version(formatter: str) -> str:
    beside = Path(sys.executable).parent / formatter
    return str(beside) if beside.is_file() else shutil.which(formatter) or ""
