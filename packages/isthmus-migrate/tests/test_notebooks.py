"""Notebooks, as analysis and conversion both read them."""

import json
from pathlib import Path
from typing import Any

import pytest

from isthmus_migrate.analyse import engine
from isthmus_migrate.convert.project import Converted, convert_file
from isthmus_migrate.flow.study import study
from isthmus_migrate.rules.registry import all_rules
from isthmus_migrate.source.files import File, Kind
from isthmus_migrate.source.findings import LEFT, Severity
from tests.helpers.analysis import findings, notebook

HEAD = """import torch

DEVICE = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
"""


def sources(text: str | bytes) -> list[str]:
    """Text of every cell of a notebook."""
    return ["".join(cell["source"]) for cell in json.loads(text)["cells"]]


def converted(folder: Path, text: str) -> Converted:
    """Convert a notebook that is a project of its own."""
    path = folder / "a.ipynb"
    path.write_text(text)
    file = File(path, path.name, Kind.NOTEBOOK)
    return convert_file(file, all_rules(), around=study([file])[0][file.name])


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
def test_every_layout_stays(tmp_path: Path, layout: dict[str, Any], as_text: bool):
    document = json.loads(notebook(HEAD, "", "x = x.cuda()\ny = 'é/'\n"))
    if as_text:
        document["cells"][2]["source"] = "".join(document["cells"][2]["source"])
    slash = "/" if as_text else "\\/"
    text = json.dumps(document, **layout).replace("/", slash) + "\n\n"
    after = converted(tmp_path, text).after
    assert after.decode() == text.replace("x = x.cuda()", "x = x.to(DEVICE)")


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
def test_magics_stay_and_the_code_around_them_is_converted(tmp_path: Path, cell: str, becomes: str):
    text = notebook(HEAD, cell, "y = y.cuda()")
    result = converted(tmp_path, text)
    assert sources(result.after) == [HEAD, becomes, "y = y.to(DEVICE)"]
    broken = {(each.path, each.code) for each in result.findings if each.severity in LEFT}
    assert broken == ({("a.ipynb#cell2", "IM001")} if "def f(" in cell else set())


@pytest.mark.parametrize(
    "cell", ["x = !ls\nx.cuda()", "%%capture out\nx.cuda()", "!a \\\n  b\nx.cuda()", "%%bash\nx.cuda()"]
)
def test_the_analysis_promises_what_is_converted(tmp_path: Path, cell: str):
    text = notebook(HEAD, cell)
    promised = {
        (each.path, each.line) for each in findings(text, "a.ipynb") if each.severity is Severity.AUTOMATIC
    }
    changes = converted(tmp_path, text).changes
    assert {(each.path, each.line) for each in changes} == promised
    assert {path for path, _ in promised} <= {"a.ipynb#cell2"}


def test_the_data_flow_goes_through_the_cells(tmp_path: Path):
    text = notebook(
        HEAD, 'd = "cuda"\nname = "cuda"', "%matplotlib inline\ntorch.ones(2, device=d)\nprint(name)"
    )
    result = converted(tmp_path, text)
    assert sources(result.after)[1] == 'd = DEVICE.type\nname = "cuda"'
    assert [(each.path, each.line) for each in result.changes] == [("a.ipynb#cell2", 1)]
    assert result.changes[0].evidence == "passed to torch.ones(device=) in a.ipynb#cell3:2"


def test_commands_are_searched_like_those_of_a_script(tmp_path: Path):
    path = tmp_path / "a.ipynb"
    path.write_text(
        notebook("import torch\n!nvidia-smi\n", "x = 1\ngpu = !nvidia-smi -L\n%pip install apex\n")
    )
    found = engine.analyse(path, probe=False).findings
    assert [(each.path, each.line, each.column, each.code, each.subject) for each in found] == [
        ("a.ipynb#cell1", 2, 2, "IM321", "nvidia-smi"),
        ("a.ipynb#cell2", 2, 8, "IM321", "nvidia-smi"),
        ("a.ipynb#cell2", 3, 14, "IM303", "apex"),
    ]


def test_the_constant_comes_after_a_magic_of_the_whole_cell(tmp_path: Path):
    after = converted(tmp_path, notebook("%%time\nimport torch\nx.cuda()")).after
    assert sources(after) == [f"%%time\n{HEAD}\nx.to(DEVICE)"]


def test_code_of_a_line_magic_is_left_with_its_place(tmp_path: Path) -> None:
    text = notebook("import torch\n%time y = torch.ones(1).cuda()\n%time y = 1\n%timeit -n 1 x.cuda()\n")
    left = [each for each in converted(tmp_path, text).findings if each.code == "IM133"]
    assert [(each.path, each.line, each.subject) for each in left] == [
        ("a.ipynb#cell1", 2, "%time"),
        ("a.ipynb#cell1", 4, "%timeit"),
    ]
