"""Tables, plurals, progress and pages of :mod:`isthmus_common`."""

from __future__ import annotations

import jinja2
import pytest

from isthmus_common import html, progress, tables, text
from isthmus_common.progress import Bar
from tests.helpers.children import output, output_fresh


def test_a_piped_table_is_tab_separated(capsys: pytest.CaptureFixture[str]):
    tables.print_table(["name", "value"], [["a", "[b]"]])
    assert capsys.readouterr().out == "name\tvalue\na\t[b]\n"
    tables.print_table(["name"], [["a"]], error=True, piped_head=False)
    assert capsys.readouterr().err == "a\n"


def test_columns_are_aligned():
    assert tables.align_columns([["name", "n"], ["a", "10"]]) == "name  n\na     10"
    assert tables.align_columns([["name", "n"], ["a", "10"]], figures=True) == "name   n\na     10"


def test_a_count_has_its_plural():
    assert [text.count(n, "file") for n in (0, 1, 2)] == ["0 files", "1 file", "2 files"]


def test_progress_is_quiet_without_a_terminal(capsys: pytest.CaptureFixture[str]):
    with Bar("files") as bar:
        bar.count(1, 2)
        bar.count(2, 2)
        bar.print("shown [b]")
    assert capsys.readouterr() == ("", "shown [b]\n")


def test_progress_is_a_line_now_and_then_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    seconds = iter([0.0, 29.0, 30.0, 40.0, 75.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(seconds))
    bar = Bar("files")
    for name in ("a", "b", "c"):
        bar.advance(name)
    bar.count(3, 4)
    assert capsys.readouterr().err == "isthmus: b: 2 done after 30 s\nisthmus: c: 75 % done after 75 s\n"


MODULES = [
    "isthmus_common.console", "isthmus_common.tables",
    "isthmus_diagnostics.accuracy.generators",
    "isthmus_diagnostics.profile.report",
]  # fmt: skip


def test_imports_draw_no_random_number() -> None:
    code = f"""
        import importlib, os, random, sys
        for name in {MODULES}:
            pid = os.fork()
            if not pid:
                state = random.getstate()
                importlib.import_module(name)
                os._exit("rich.style" not in sys.modules or random.getstate() != state)
            print(name, os.waitpid(pid, 0)[1])
    """
    assert output(code).splitlines() == [f"{name} 0" for name in MODULES]


def test_a_line_is_said_without_rich() -> None:
    """A program that imports Rich later draws the number that its import draws, as without Isthmus."""
    code = """
        import sys
        from isthmus_common.progress import say
        say("a line")
        print("rich" in sys.modules)
    """
    assert output_fresh(code) == "False"


def test_a_page_escapes_its_values():
    page = html.render("isthmus_diagnostics/profile/report.html.j2", title="<b>", sections=[], facts={})
    assert "<h1>&lt;b&gt;</h1>" in page and page.startswith("<!doctype html>")
    with pytest.raises(jinja2.UndefinedError):
        html.render("isthmus_diagnostics/profile/report.html.j2", title="x")
