"""isthmus_migrate.source.parse: from files and notebooks to modules."""

from pathlib import Path

import pytest

from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.parse import dotted, package_of, parse
from tests.helpers.analysis import findings, notebook, source


def broken(text: str, name: str = "a.py") -> list[tuple[str, str, int]]:
    return [(each.code, each.path, each.line) for each in parse(source(text, name))[1]]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = 1\nb = (\n", 2),
        ("print 'python 2'\n", 1),
        ("(" * 1000 + ")" * 1000, 1),
        ("a" + "+a" * 100_000, 0),
        ("a = '\ud800'", 0),
    ],
)
def test_invalid_syntax(text: str, line: int):
    problems = parse(source("", "a.py")._replace(text=text))[1]
    assert [(each.code, each.line) for each in problems] in ([("IM001", line)], [("IM001", 0)])
    assert "\n" not in problems[0].message


def test_a_byte_order_mark_and_invalid_escapes_are_accepted(recwarn: pytest.WarningsRecorder):
    module, problems = parse(source("\ufeffa = '\\d'\n"))
    assert module
    assert not problems
    assert [str(each.message) for each in recwarn.list] == []


def test_dotted_names(tmp_path: Path):
    assert dotted("a/b/c.py") == "a.b.c"
    assert dotted("a/__init__.py", "package") == "package.a"
    (tmp_path / "outer" / "inner").mkdir(parents=True)
    for folder in ("outer", "outer/inner"):
        (tmp_path / folder / "__init__.py").touch()
    assert package_of(tmp_path / "outer" / "inner") == "outer.inner"
    assert package_of(tmp_path / "outer" / "__init__.py") == "outer"
    assert package_of(tmp_path) == ""


def test_lines_are_those_of_python():
    module, _ = parse(source("a = 1\r\nb = '\x0c\u2028'\rc = 2\n"))
    assert module
    assert module.lines == ["a = 1", "b = '\x0c\u2028'", "c = 2", ""]


def test_columns_count_characters():
    (finding,) = findings("import torch\né = 'é'; torch.cuda.synchronize()\n")
    assert (finding.line, finding.column) == (2, 10)


class TestNotebook:
    def test_findings_name_the_cell_and_its_line(self):
        text = notebook(
            {"cell_type": "markdown", "source": "torch.cuda"},
            "import torch\n\nx = 1",
            {"cell_type": "code", "source": "y = 2\ntorch.cuda.synchronize()"},
        )
        (finding,) = findings(text, "a.ipynb")
        assert (finding.code, finding.path, finding.line) == ("IM112", "a.ipynb#cell3", 2)

    def test_magics(self):
        text = notebook(
            "%matplotlib inline\n!pip install torch\nimport torch\nx = !ls\ny = %time 3\ntorch?",
            "%%bash\nnvidia-smi",
            "for i in range(3):\n    %time f(i)\n    torch.cuda.synchronize()",
            "await f()",
        )
        assert [(each.path, each.line) for each in findings(text, "a.ipynb")] == [("a.ipynb#cell3", 3)]

    def test_a_percent_sign_in_an_expression_is_not_a_magic(self):
        assert not broken(notebook("a = (3\n% b)\n"), "a.ipynb")

    def test_a_broken_cell_does_not_hide_the_others(self):
        text = notebook("import torch", "def f(:", "torch.cuda.synchronize()")
        module, problems = parse(source(text, "a.ipynb"))
        assert module
        assert [(each.code, each.path, each.line) for each in problems] == [("IM001", "a.ipynb#cell2", 1)]
        assert module.text == "# isthmus: cell 1\nimport torch\n# isthmus: cell 3\ntorch.cuda.synchronize()\n"

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{",
            "[]",
            "{}",
            '{"cells": 3}',
            '{"cells": [3]}',
            '{"cells": [{"cell_type": "code"}]}',
            "[" * 10**5,
        ],
    )
    def test_files_that_are_not_notebooks(self, text: str):
        module, problems = parse(source(text, "a.ipynb"))
        assert module is None
        assert [each.code for each in problems] == ["IM001"]
        assert isinstance(problems[0], Finding)

    def test_odd_cells(self):
        text = notebook({"cell_type": "code", "source": [3, None]}, {"cell_type": "code", "source": 3})
        module, problems = parse(source(text, "a.ipynb"))
        assert module is None or not module.tree.body
        assert {each.code for each in problems} <= {"IM001"}
