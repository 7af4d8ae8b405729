"""Any source converts without a crash, compiles, converts once only, and changes only where logged."""

from __future__ import annotations

import ast
from collections import Counter

from hypothesis import example, given, settings
from hypothesis import strategies as st

from isthmus_migrate.convert.engine import Result, convert_source
from isthmus_migrate.source.edits import Edit, apply
from isthmus_migrate.source.findings import LEFT, Severity

SETTINGS = settings(max_examples=60, deadline=None)

ATOMS = st.sampled_from(
    [
        *("x", "model", "device", "args.gpu", "x.is_cuda", "device.type", "1", "None", "True"),
        *('"cuda"', "'cuda:1'", '"cpu"', 'f"cuda:{x}"', "f'{x.is_cuda} cuda'", '"cuda:%d"', '"cuda:"'),
        *("torch.cuda.is_available()", "torch.cuda.memory_allocated()", "torch.cuda.synchronize"),
        *("torch.cuda.Stream", "torch.cuda.FloatTensor", "torch.backends.cudnn.enabled"),
        *("sync()", "autocast()", 'nvtx.range("a")', 'torch.device("cuda")'),
    ]
)

EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([".cuda()", ".cuda(0, non_blocking=True)", ".to", "[0]"])).map(
            "".join
        ),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds(
            "({} {} {})".format, inner, st.sampled_from(["and", "or", "==", "!=", "in", "+", "%"]), inner
        ),
        st.builds("(not {})".format, inner),
        st.builds("f({}, device={})".format, inner, inner),
        st.builds(
            "torch.cuda.{}({})".format, st.sampled_from(["device", "manual_seed", "get_device_name"]), inner
        ),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("{{{}: {}}}".format, inner, inner),
        st.builds("(lambda a, b: {})".format, inner),
        st.builds("torch.zeros(\n    2,\n    device={},  # where\n)".format, inner),
        st.builds("x.to({})".format, inner),
        st.builds("torch.load(f, map_location={})".format, inner),
    ),
    max_leaves=4,
)
SIMPLE = st.one_of(
    EXPRESSIONS,
    st.builds("y = {}".format, EXPRESSIONS),
    st.builds("y = {}  # why".format, EXPRESSIONS),
    st.builds("{}; y = {}".format, EXPRESSIONS, EXPRESSIONS),
    st.sampled_from(
        [
            "torch.cuda.empty_cache()",
            "torch.cuda.ipc_collect()  # now",
            "torch.backends.cudnn.benchmark = True",
            'torch.set_default_tensor_type("torch.cuda.FloatTensor")',
            "from torch.cuda import synchronize as sync",
            "from torch.cuda.amp import autocast",
            "from torch.cuda import nvtx",
            "import torch",
            "DEVICE = 1",
        ]
    ),
)


def _indented(block: str) -> str:
    return "\n".join(f"    {line}" for line in block.split("\n"))


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    heads = st.one_of(
        st.builds("if {}:".format, EXPRESSIONS),
        st.builds("with {}:".format, EXPRESSIONS),
        st.builds("def f(a={}):".format, EXPRESSIONS),
        st.sampled_from(["class C:", "while True:", "for y in x:"]),
    )
    return st.one_of(
        st.builds("{}\n{}".format, heads, inner.map(_indented)),
        st.builds("{} {}".format, heads, SIMPLE),
        st.builds("\n# a comment\n{}\n{}".format, inner, inner),
    )


SOURCES = st.builds(
    lambda start, body, ends, final: (start + body + final).replace("\n", ends),
    st.sampled_from(["", "import torch\n", '"""Words."""\n\nimport torch as th\nimport torch\n', "# cuda\n"]),
    st.recursive(SIMPLE, _compound, max_leaves=5),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["\n", ""]),
)


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def _left(result: Result) -> Counter[str]:
    """Codes of what is left to a person."""
    return Counter(each.code for each in result.findings if each.severity in LEFT)


@SETTINGS
@example('import torch\nx = torch.device("cuda") == torch.device("cuda")\n')
@given(SOURCES)
def test_any_source(source: str) -> None:
    if not _parses(source):
        return
    result = convert_source(source, "any.py")
    assert not [finding for finding in result.findings if finding.code == "IM001"]
    ast.parse(result.text)
    assert all((each.severity is Severity.AUTOMATIC) == bool(each.edits) for each in result.findings)
    assert result.changes or result.text == source
    again = convert_source(result.text, "any.py")
    assert (again.text, again.changes) == (result.text, [])
    assert _left(again) == _left(result)


@SETTINGS
@given(SOURCES)
def test_lines_without_a_change_stay(source: str) -> None:
    result = convert_source(source, "any.py")
    changed = {number for change in result.changes for number in range(change.line, change.end_line + 1)}
    end = "\r\n" if "\r\n" in source else "\n"  # a last line may get one
    before, after = (each.removesuffix(end) + end for each in (source, result.text))
    kept = [line for number, line in enumerate(before.split("\n"), 1) if number not in changed]
    lines = iter(after.split("\n"))
    assert all(line in lines for line in kept)  # in the same order


@SETTINGS
@given(st.text())
def test_any_text(text: str) -> None:
    source = "import torch\nx.cuda()\n" + text
    result = convert_source(source, "any.py")
    assert result.changes or result.text == source


def test_insertions_at_one_place_keep_the_order_in_which_they_are_made():
    letters = [chr(code) for code in range(ord("a"), ord("z"))]
    assert apply("()", [Edit(1, 1, each) for each in (*letters, letters[0])]) == f"({''.join(letters)})"
