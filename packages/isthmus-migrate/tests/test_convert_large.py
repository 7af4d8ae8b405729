"""Sources of unusual size or depth: the time of a conversion grows with its lines, and one file stops no other."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable
from pathlib import Path

import pytest

from isthmus_migrate.analyse import engine as analysis
from isthmus_migrate.convert import project
from isthmus_migrate.convert.engine import convert_source


def _list(count: int) -> str:
    lines = "".join(f"    'cuda_{index} text cuda',\n" for index in range(count))
    return f"import torch\nTEXTS = [\n{lines}]\n"


def _table(count: int) -> str:
    lines = "".join(f"    'key{index}': 'cuda',\n" for index in range(count))
    return f"import torch\nDEVICES = {{\n{lines}}}\n"


def _function(count: int) -> str:
    body = """\
    if n == 1:
        return x
    x = x.cuda()
    if device == "cuda":
        torch.cuda.synchronize()
    if x.is_cuda and n > 2:
        x = x.to("cuda")
"""
    return "import torch\ndef f(x, device, n):\n" + body * (count // 16)


def _calls(source: str) -> int:
    profile = cProfile.Profile()
    profile.runcall(convert_source, source, "a.py")
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.mark.parametrize("source", [_list, _table, _function])
def test_the_work_grows_with_the_lines(source: Callable[[int], str]) -> None:
    convert_source(source(1), "a.py")  # fills caches
    assert _calls(source(1600)) < 5 * _calls(source(400))


def test_a_file_that_is_nested_too_deeply_stops_no_other(tmp_path: Path) -> None:
    deep = "import torch\nx = torch.ones(1)\ny = x" + ".cuda()" * 900 + "\n"
    (tmp_path / "deep.py").write_text(deep)
    (tmp_path / "plain.py").write_text("import torch\nx = torch.ones(1).cuda()\n")
    found = {each.name: each for each in project.convert(tmp_path, project.Request(), processes=1)}
    (finding,) = found["deep.py"].findings
    assert (finding.code, finding.message) == ("IM001", "is nested too deeply; it is not analysed")
    assert convert_source(deep, "deep.py").findings == [finding]
    (unparsed,) = convert_source(deep.replace(".cuda()" * 900, " + x" * 9000), "deep.py").findings
    assert unparsed == finding
    assert [each.code for each in found["plain.py"].changes] == ["IM101"]
    report = analysis.analyse(tmp_path, processes=1, probe=False)
    assert sorted((each.path, each.code) for each in report.findings) == [
        ("deep.py", "IM001"),
        ("plain.py", "IM101"),
    ]
