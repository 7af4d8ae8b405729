"""Notebooks, as analysis and conversion both read them."""

import json
from typing import Any

import pytest

from isthmus.migrate.convert.engine import convert_source
from isthmus.migrate.convert.notebook import convert_notebook
from isthmus.migrate.source.findings import Severity
from tests.helpers.analysis import findings, notebook

HEAD = """import torch

DEVICE = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
"""


def sources(text: str) -> list[str]:
    """Text of every cell of a notebook."""
    return ["".join(cell["source"]) for cell in json.loads(text)["cells"]]


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"indent": 3},
        {"indent": "\t"},
        {"separators": (",", ":")},
        {"separators": (" ,", " :"), "indent": 1},
    ],
)
@pytest.mark.parametrize("as_text", [False, True])
def test_every_layout_stays(layout: dict[str, Any], as_text: bool):
    document = json.loads(notebook(HEAD, "", "x = x.cuda()\ny = 'é/'\n"))
    if as_text:
        document["cells"][2]["source"] = "".join(document["cells"][2]["source"])
    slash = "/" if as_text else "\\/"
    text = json.dumps(document, **layout).replace("/", slash) + "\n\n"
    result = convert_notebook(text, "a.ipynb", convert_source)
    assert result.text == text.replace("x = x.cuda()", "x = x.to(DEVICE)")


@pytest.mark.parametrize(
    ("cell", "becomes"),
    [
        ("files = !ls\nx.cuda()", "files = !ls\nx.to(DEVICE)"),
        ("!pip install a \\\n    b\nx.cuda()", "!pip install a \\\n    b\nx.to(DEVICE)"),
        ("for i in x:\n    %time f(i)\n    i.cuda()", "for i in x:\n    %time f(i)\n    i.to(DEVICE)"),
        ("x.cuda()\ntorch.nn?", "x.to(DEVICE)\ntorch.nn?"),
        ("?torch.nn\nx.cuda()", "?torch.nn\nx.to(DEVICE)"),
        ("a = (3\n% b)\nx.cuda()", "a = (3\n% b)\nx.to(DEVICE)"),
        ("a = '''\n%d\n!'''\n!ls\nx.cuda()", "a = '''\n%d\n!'''\n!ls\nx.to(DEVICE)"),
        ("x.cuda()\nawait f()", "x.to(DEVICE)\nawait f()"),
        ("%%time\nx.cuda()", "%%time\nx.to(DEVICE)"),
        ("%%bash\nx.cuda()", "%%bash\nx.cuda()"),
        ("def f(:\n    x.cuda()", "def f(:\n    x.cuda()"),
    ],
)
def test_magics_stay_and_the_code_around_them_is_converted(cell: str, becomes: str):
    text = notebook(HEAD, cell, "y = y.cuda()")
    result = convert_notebook(text, "a.ipynb", convert_source)
    assert sources(result.text) == [HEAD, becomes, "y = y.to(DEVICE)"]
    broken = {(each.path, each.code) for each in result.findings}
    assert broken == ({("a.ipynb#cell2", "IM001")} if "def f(" in cell else set())


@pytest.mark.parametrize(
    "cell", ["x = !ls\nx.cuda()", "%%capture out\nx.cuda()", "!a \\\n  b\nx.cuda()", "%%bash\nx.cuda()"]
)
def test_the_analysis_promises_what_is_converted(cell: str):
    text = notebook(HEAD, cell)
    promised = {
        (each.path, each.line) for each in findings(text, "a.ipynb") if each.severity is Severity.AUTOMATIC
    }
    assert {
        (each.path, each.line) for each in convert_notebook(text, "a.ipynb", convert_source).changes
    } == promised


def test_the_constant_comes_after_a_magic_of_the_whole_cell():
    result = convert_notebook(notebook("%%time\nx.cuda()"), "a.ipynb", convert_source)
    assert sources(result.text) == [f"%%time\n{HEAD}\nx.to(DEVICE)"]
