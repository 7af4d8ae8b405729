"""The documentation's commands exist, those marked runnable run, and its links lead somewhere.

A fenced block is run when its info string says so: ```bash runnable, ```python runnable or ```console runnable. In
a console block, lines after "$ " are commands and the others their output, where "..." stands for anything.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
BIN = Path(sys.executable).parent


class Block(NamedTuple):
    page: str
    language: str
    runnable: bool
    body: str


def blocks() -> list[Block]:
    found = []
    for page in PAGES:
        for match in FENCE.finditer(page.read_text()):
            language, *marks = match["info"].split() or [""]
            assert set(marks) <= {"runnable"}, f"{page.name}: {match['info']}"
            found.append(Block(page.name, language, "runnable" in marks, match["body"]))
    return found


def commands(block: Block) -> list[str]:
    if block.language == "console":
        return [line[2:] for line in block.body.splitlines() if line.startswith("$ ")]
    if block.language == "bash":
        return [line for line in block.body.splitlines() if line.strip() and not line.startswith("#")]
    return []


def run(command: list[str], stdin: str | None = None) -> str:
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    result = subprocess.run(
        command,
        input=stdin,
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, f"{command}: {result.stderr[-2000:]}"
    return result.stdout


ALL = blocks()
RUNNABLE = [block for block in ALL if block.runnable]
WRITTEN = sorted({command for block in ALL for command in commands(block)})


def test_there_is_something_to_run():
    assert {block.page for block in RUNNABLE} >= {"README.md"}


@pytest.mark.parametrize(
    "block", RUNNABLE, ids=lambda block: f"{block.page}: {block.body.splitlines()[0][:40]}"
)
def test_runnable_block(block: Block):
    if block.language == "python":
        run([sys.executable, "-"], stdin=block.body)
    elif block.language == "bash":
        run(["bash", "-euo", "pipefail", "-c", block.body])
    else:
        assert block.language == "console"
        check_console(block.body)


def check_console(body: str) -> None:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        printed = run(["bash", "-euo", "pipefail", "-c", command])
        if expected.strip():
            matches = doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS)
            assert matches, f"$ {command}\nexpected:\n{expected}\nprinted:\n{printed}"


@pytest.mark.parametrize("command", WRITTEN)
def test_command_exists(command: str):
    words = [word for word in shlex.split(command, comments=True) if "=" not in word.split("/")[0]]
    if words[:1] == ["isthmus"] and len(words) > 1 and not words[1].startswith("-"):
        assert "Usage: isthmus" in run([str(BIN / "isthmus"), words[1], "--help"])
    elif words[:1] == ["make"]:
        for target in words[1:]:
            assert_target(target)
    else:
        assert words, command


def assert_target(target: str) -> None:
    rules = re.findall(r"^([a-z ]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert any(target in names.split() for names in rules), f"the Makefile has no target {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path):
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"
