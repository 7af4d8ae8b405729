"""The analysis does not fail on any file, and its findings are in the file."""

import ast
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isthmus_migrate.analyse.engine import analyse
from isthmus_migrate.source.files import Source, walk

SETTINGS = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
NAMES = st.sampled_from(
    "torch cuda x y model loader apex flash_attn amp device nn F item to backward step mask padding".split()
)
STRINGS = st.sampled_from(
    ["cuda", "cuda:0", "cuda:", "nccl", "cpu:gloo,cuda:nccl", "--local_rank", "NCCL_X", "é\n", ""]
)
LITERALS = st.one_of(STRINGS.map(repr), st.integers(-2, 9).map(str), st.just("None"), st.just("..."))


def compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pair = st.tuples(inner, inner)
    return st.one_of(
        st.tuples(inner, NAMES).map(lambda t: f"({t[0]}).{t[1]}"),
        pair.map(lambda t: f"({t[0]})({t[1]})"),
        st.tuples(inner, NAMES, inner).map(lambda t: f"({t[0]})({t[1]}={t[2]})"),
        pair.map(lambda t: f"({t[0]})[{t[1]}]"),
        pair.map(lambda t: f"({t[0]} == {t[1]})"),
        pair.map(lambda t: f"({t[0]} % {t[1]})"),
        st.tuples(NAMES, inner).map(lambda t: f"(lambda {t[0]}: {t[1]})"),
        pair.map(lambda t: f"[{t[0]} for x in {t[1]}]"),
        inner.map(lambda t: f"f'cuda:{{{t}}}'" if "'" not in t and "\\" not in t else t),
        pair.map(lambda t: f"{{{t[0]}: {t[1]}, **x}}"),
    )


EXPRESSIONS = st.recursive(st.one_of(NAMES, LITERALS), compound, max_leaves=8)
SIMPLE = st.one_of(
    EXPRESSIONS,
    st.tuples(NAMES, EXPRESSIONS).map(lambda t: f"{t[0]} = {t[1]}"),
    st.tuples(NAMES, NAMES, NAMES).map(lambda t: f"from {t[0]}.{t[1]} import {t[2]}"),
    st.tuples(NAMES, NAMES).map(lambda t: f"import {t[0]} as {t[1]}"),
    st.tuples(NAMES, NAMES).map(lambda t: f"from ...{t[0]} import {t[1]}, {t[0]}"),
    st.just("from torch.cuda import *"),
)


def block(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    body = st.lists(inner, min_size=1, max_size=3).map("\n".join)
    heads = st.one_of(
        st.tuples(NAMES, NAMES).map(lambda t: f"def {t[0]}({t[1]}, *args):"),
        st.tuples(NAMES, EXPRESSIONS).map(lambda t: f"class {t[0]}({t[1]}):"),
        st.tuples(NAMES, EXPRESSIONS).map(lambda t: f"for {t[0]} in {t[1]}:"),
        EXPRESSIONS.map(lambda t: f"if {t}:"),
        EXPRESSIONS.map(lambda t: f"while {t}:"),
        EXPRESSIONS.map(lambda t: f"with {t}:"),
    )
    return st.tuples(heads, body).map(
        lambda t: t[0] + "\n" + "\n".join(f"    {line}" for line in t[1].split("\n"))
    )


PROGRAMS = st.lists(st.recursive(SIMPLE, block, max_leaves=6), max_size=6).map("\n".join)


@SETTINGS
@given(PROGRAMS)
def test_a_program(tmp_path: Path, text: str):
    try:
        ast.parse(text)
    except SyntaxError:
        return
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    report = analyse(tmp_path, probe=False)
    lines = text.count("\n") + 1
    assert all(1 <= finding.line <= finding.end_line <= lines for finding in report.findings)
    assert all(finding.column >= 1 for finding in report.findings)
    assert not any(finding.code.startswith("IM0") for finding in report.findings)
    assert report == analyse(tmp_path, probe=False)


@SETTINGS
@given(
    st.sampled_from(["a.py", "a.ipynb", "a.sh", "requirements.txt", "pyproject.toml", "a.cu", "a.h"]),
    st.one_of(
        st.binary(max_size=200), st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))
    ),
)
def test_any_bytes(tmp_path: Path, name: str, data: bytes):
    (tmp_path / "b").mkdir(exist_ok=True)
    path = tmp_path / "b" / name
    path.write_bytes(data)
    try:
        report = analyse(tmp_path / "b", probe=False)
        (read,) = walk(tmp_path / "b")
        if isinstance(read, Source):
            assert read.text.encode(read.encoding) == data
        assert all(finding.path.startswith(name) for finding in report.findings)
    finally:
        path.unlink()


@pytest.mark.parametrize(
    "nested", ["(" * 90 + "x" + ")" * 90, "x" + ".y" * 5000, "x" + "(1)" * 900, "-" * 900 + "1"]
)
def test_deeply_nested(tmp_path: Path, nested: str):
    (tmp_path / "a.py").write_text(f"import torch\ny = torch.cuda\nif {nested}: torch.cuda.synchronize()\n")
    report = analyse(tmp_path, probe=False)
    assert {finding.code for finding in report.findings} & {"IM112", "IM001"}
