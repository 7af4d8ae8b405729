"""The documentation's commands exist, those marked runnable run, its links lead somewhere, its figures are measured.

A fenced block is run when its info string says so: ```bash runnable, ```python runnable or ```console runnable. In
a console block, lines after "$ " are commands and the others their output, where "..." stands for anything. Chinese
pages have the blocks of the English ones, so that these are run once.
"""

from __future__ import annotations

import doctest
import functools
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

from isthmus.launch.cli import parser
from tests.helpers import children
from tools.repository import ROOT

DOCS = ROOT / "docs"
CHINESE = [ROOT / "README.zh.md", *sorted((DOCS / "zh").rglob("*.md"))]
PAGES = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md"),
    *sorted(ROOT.glob("packages/*/README.md")),
    *(page for page in sorted(DOCS.rglob("*.md")) if not page.is_relative_to(DOCS / "zh")),
]
GUIDES = [  # these are in Chinese too
    *(page for name in ("guides", "chip-makers") for page in sorted((DOCS / name).glob("*.md"))),
    *sorted((DOCS / "contributing").glob("add-*.md")),
]
BY_HAND = [
    page
    for page in [*PAGES, *CHINESE]
    if DOCS / "results" not in page.parents and page.stem != "silent-errors"
]
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`((?:isthmus|make) [^`\n]+)`")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
BIN = Path(sys.executable).parent
# Options before a program; its own arguments follow.
RUNNERS = {
    ("ascend", "exec"),
    ("run",),
    ("bisect",),
    ("migrate", "verify"),
    ("migrate", "trace"),
    ("memory", "trace", "record"),
    ("plan", "recompute"),
    ("cluster", "render"),
    ("cluster", "run"),
}


class Block(NamedTuple):
    page: str
    language: str
    runnable: bool
    body: str


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    found = []
    for match in FENCE.finditer(page.read_text()):
        language, *marks = match["info"].split() or [""]
        assert set(marks) <= {"runnable"}, f"{page.name}: {match['info']}"
        found.append(Block(name(page), language, "runnable" in marks, match["body"]))
    return found


def commands(page: Path) -> set[str]:
    """Return the commands in blocks and in the text."""
    found = set(SPAN.findall(FENCE.sub("", page.read_text())))
    for block in blocks(page):
        lines = block.body.splitlines()
        if block.language == "console":
            found |= {line[2:] for line in lines if line.startswith("$ ")}
        elif block.language == "bash":
            found |= {line for line in lines if line.strip() and not line.startswith("#")}
    return found


ALL = [block for page in PAGES for block in blocks(page)]
RUNNABLE = [block for block in ALL if block.runnable]
PYTHON = [block for block in RUNNABLE if block.language == "python"]


# ---- What is run ---------------------------------------------------------------------------------------


def run(command: list[str]) -> str:
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "PYTEST_ADDOPTS": ""}
    result = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert result.returncode == 0, f"{command}: {result.stderr[-2000:]}"
    return result.stdout


def identity(block: Block) -> str:
    return f"{block.page}: {block.body.splitlines()[0][:40]}"


@pytest.mark.parametrize("block", PYTHON, ids=identity)
def test_python_block(block: Block):
    children.output(block.body)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "block",
    [
        # The tests of checkpoints run the commands of the one, in one process; the other compiles C++.
        pytest.param(block, marks=pytest.mark.full)
        if block.page.endswith(("checkpoints.md", "guides/infer.md"))
        else block
        for block in RUNNABLE
        if block not in PYTHON
    ],
    ids=identity,
)
def test_runnable_block(block: Block):
    if block.language == "bash":
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


# ---- What exists ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [*PAGES, *CHINESE], ids=name)
def test_commands_exist(page: Path):
    for command in sorted(commands(page)):
        words = shlex.split(command, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            del words[0]
        if words[:1] == ["env"]:
            words = [word for word in words[1:] if "=" not in word.split("/")[0]]
        if words[:1] == ["isthmus"]:
            check_isthmus(words[1:], command)
        elif words[:1] == ["make"]:
            for target in words[1:]:
                assert "=" in target or has_target(target), f"{command}: the Makefile has no such target"
        else:
            assert words, command


@functools.cache
def application() -> Any:
    from isthmus_common.application import app

    return get_command(app)


def check_isthmus(words: list[str], command: str) -> None:
    """Each word names a command of the group before it, and each option is one of the command's."""
    found = application()
    path: tuple[str, ...] = ()
    while words and hasattr(found, "commands"):
        inner = found.get_command(None, words[0])
        assert inner, f"{command}: no such command: {words[0]}"
        found, path, words = inner, (*path, words[0]), words[1:]
    if path == ("run",):
        known = set(parser()._option_string_actions)
    else:
        options = (option for each in found.params for option in (*each.opts, *each.secondary_opts))
        known = {*options, "--help", "--version"}
    for word in words:
        if path in RUNNERS and (
            word in ("--", "-m", "-c", "torchrun", "deepspeed", "accelerate") or word.endswith(".py")
        ):
            return
        if word.startswith("--"):
            option = word.partition("=")[0]
            assert option in known, f"{command}: no such option: {option}"


def has_target(target: str) -> bool:
    rules = re.findall(r"^([a-z -]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return any(target in names.split() for names in rules)


@pytest.mark.parametrize("page", [*PAGES, *CHINESE], ids=name)
def test_links_are_not_broken(page: Path):
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        assert (page.parent / target).exists(), f"{name(page)}: {target}"


@pytest.mark.parametrize("page", BY_HAND, ids=name)
def test_named_tests_exist(page: Path):
    existing = {
        path.name
        for path in (*(ROOT / "tests").rglob("test_*.py"), *ROOT.glob("packages/*/tests/**/test_*.py"))
    }
    assert set(re.findall(r"\btest_\w+\.py\b", page.read_text())) <= existing


# ---- How pages are written -----------------------------------------------------------------------------


@pytest.mark.parametrize("page", BY_HAND, ids=name)
def test_a_hand_written_page_is_short(page: Path):
    limit = 120 if page.stem.startswith("README") and page.parent == ROOT else 200
    assert len(page.read_text().splitlines()) <= limit


@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_a_guide_states_its_purpose_and_has_an_example(page: Path):
    title, blank, first, second, *_ = page.read_text().splitlines()
    assert title.startswith("# ")
    assert not blank
    assert first
    if page.stem != "index":
        assert second, "two lines: the task, and when to use another page"
        assert "](" in first + second, "a link to the page to use instead"
        assert blocks(page), "an example"


@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_a_chinese_page_has_the_examples_of_the_english_one(page: Path):
    chinese = DOCS / "zh" / page.relative_to(DOCS)
    assert [block[1:] for block in blocks(chinese)] == [block[1:] for block in blocks(page)]


def test_the_readmes_have_the_same_examples_and_figures():
    english, chinese = ROOT / "README.md", ROOT / "README.zh.md"
    assert [block[1:] for block in blocks(english)] == [block[1:] for block in blocks(chinese)]
    assert commands(english) == commands(chinese)


def test_every_chinese_page_has_an_english_one():
    for page in (DOCS / "zh").rglob("*.md"):
        assert (DOCS / page.relative_to(DOCS / "zh")).exists(), name(page)


# ---- The figures of the README -------------------------------------------------------------------------


def result(file: str, **row: str | int) -> dict[str, Any]:
    """The row of benchmarks/results/FILE.json with these values."""
    rows = json.loads((ROOT / "benchmarks" / "results" / f"{file}.json").read_text())["rows"]
    return next(each for each in rows if each.items() >= row.items())


def figures() -> dict[str, str]:
    step = result("train_step", peer="cpu")
    cached = result("train_step", peer="cpu, malloc keeps memory")
    compiled = result("compile_step", peer="cpu, torch.compile")
    sharded = result("parallel_step", job="sharded", peer="cpu, gloo")
    reduced = result("collectives", ranks=2, collective="all_reduce", algorithm="by default", KiB=65536)
    calls = [result("overhead", operator=name)["ratio"] for name in "add mul_ view mm softmax empty".split()]
    norm = result("llm_operators", operator="rms_norm", dtype="bfloat16", **{"pass": "forward+backward"})
    memory = {each: result("allocators", trace="dense-7b", allocator=each) for each in ("planned", "torch")}
    mutation = json.loads((ROOT / "benchmarks" / "results" / "mutation.json").read_text())
    opinfo = re.search(r"operators: (\d+); (\d+) agree", (DOCS / "results" / "opinfo.md").read_text())
    corpus = re.search(
        r"(\d+) could be compared: the converted script equals the original in (\d+) on the chip",
        (DOCS / "results" / "migrate-corpus.md").read_text(),
    )
    assert opinfo
    assert corpus
    return {
        "make opinfo": f"{opinfo[2]} of {opinfo[1]}",
        "make migrate-corpus": f"{corpus[2]} of {corpus[1]}",
        "make mutate": f"{100 * mutation['score']:.1f} %",
        "mutants": f"{mutation['mutants']} mutants",
        "autoload.py": f"+{result('autoload')['added_ms']:.0f} ms",
        "overhead.py": f"{median(calls):.2f}x at the median, {max(calls):.2f}x at worst",
        "training step": f"{step['chip_over_peer']:.2f}x",
        "caching malloc": f"{cached['chip_over_peer']:.2f}x",
        "operators of": f"{step['operators_over_peer']:.2f}x",
        "compile_step.py": f"{compiled['chip_over_peer']:.2f}x",
        "parallel_step.py": f"{sharded['chip_over_peer']:.2f}x",
        "collectives.py": f"{reduced['chip_GB/s']:.1f} GB/s",
        "gloo, ": f"{reduced['gloo_GB/s']:.2f} GB/s",
        "allocators.py": f"{memory['planned']['reserved/live']:.3f}x",
        "PyTorch's allocator": f"{memory['torch']['reserved/live']:.3f}x",
        "llm_operators.py": f"{norm['over_eager']:.2f}x",
    }


def test_the_figures_of_the_readme_are_those_of_the_results():
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| ")]
    for words, figure in figures().items():
        row = next(row for row in rows if words in row)
        assert figure in row, f"{row}\nmeasured: {figure}"


def test_the_chinese_readme_has_the_figures_of_the_english_one():
    english, chinese = (
        [
            line
            for line in (ROOT / page).read_text().splitlines()
            if "+37" in line or re.search(r"\.py`|`make", line)
        ]
        for page in ("README.md", "README.zh.md")
    )
    number = re.compile(r"[+-]?\d+\.\d+|\d{3,}|\d+ ms")
    assert [sorted(number.findall(line)) for line in english] == [
        sorted(number.findall(line)) for line in chinese
    ]
