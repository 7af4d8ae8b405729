"""Rewriting the user's source: equal behaviour except for the accelerator, on the same lines."""

import ast
import importlib
import linecache
import operator
import re
import sys
import traceback

import pytest
import torch

from isthmus import shim
from isthmus.shim import import_hook
from isthmus.shim.rewrite import compile_source, rewrite, worth_parsing

CHIP = "chip"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module and import it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    names = []

    def load(source, name="user_module"):
        (tmp_path / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        names.append(name)
        return importlib.import_module(name)

    yield load
    for name in names:
        sys.modules.pop(name, None)


def run(source, **names):
    exec(compile_source(source, "<test>"), names)
    return names


# ---- results --------------------------------------------------------------------------------------------------
EXPRESSIONS = [
    ("x.device.type == 'cuda'", True),
    ("x.device.type != 'cuda'", False),
    ("x.device.type in ('cuda', 'xpu')", True),
    ("{'cuda': 1}[x.device.type]", 1),
    ("x.device.type.startswith('cuda')", True),
    ("x.is_cuda and not c.is_cuda", True),
    ("getattr(x, 'is_cuda', False)", True),
    ("getattr(c, 'is_cuda'), getattr(3, 'is_cuda', 'none')", (False, "none")),
    ("getattr(x.device, 'type')", "cuda"),
    ("str(x.device)", "cuda:0"),
    ("'cuda' in str(torch.device('cuda'))", True),
    ("str(x.device).split(':')[1]", "0"),
    ("f'{x.device}', f'{x.device!s:>8}'", ("cuda:0", "  cuda:0")),
    ("f'{x.device!r}'", "device(type='cuda', index=0)"),
    ("f'{x.sum():.1f}', '%d %.1f' % (x, x)", ("1.0", "1 1.0")),
    ("repr(x), str([x])", ("tensor([1.], device='cuda:0')", "[tensor([1.], device='cuda:0')]")),
    ("'{0.type} {0} {1}'.format(x.device, c.device)", "cuda cuda:0 cpu"),
    ("'{d[k]}'.format(d={'k': x.device}), format(x.device)", ("cuda:0", "cuda:0")),
    ("'on %s' % x.device, '%(a)s' % {'a': x.device}", ("on cuda:0", "cuda:0")),
    ("[getattr(x, name) for name in ('is_cuda', 'ndim')]", [True, 1]),
    ("operator.attrgetter('is_cuda', 'device.type')(x)", (True, "cuda")),
    ("operator.attrgetter('ndim')(x)", 1),
    ("eval('x.is_cuda'), eval('  f(x)', {'f': lambda t: t.ndim, 'x': x})", (True, 1)),
    ("eval(compile('x.device.type', 'made', mode='eval'))", "cuda"),
    ("eval(compile(ast.parse('x.is_cuda', mode='eval'), 'made', 'eval'))", True),
    ("eval('x.is_cuda', {'__builtins__': {}, 'x': x})", False),
    ("torch.version.cuda", "12.8"),
    ("x.untyped_storage().is_cuda", True),
    ("isinstance(x, torch.cuda.FloatTensor)", True),
    ("torch.cuda.FloatTensor.is_cuda", True),
    ("torch.FloatTensor.is_cuda", False),
    ("x.type()", "torch.cuda.FloatTensor"),
    ("getattr(torch, x.device.type).current_device()", 0),
    ("torch.device(x.device.type, 1).type", "cuda"),
    ("torch.device(str(x.device)) == x.device", True),
    ("c.device.type, str(c.device)", ("cpu", "cpu")),
    ("(lambda d: d.type)(x.device)", "cuda"),
    ("[d.type for d in (x.device, c.device)]", ["cuda", "cpu"]),
]


def test_expressions_on_the_accelerator(cuda):
    names = {"torch": torch, "x": torch.ones(1, device="cuda"), "c": torch.ones(1)}
    names.update(operator=operator, ast=ast)
    for expression, expected in EXPRESSIONS:
        assert run(f"result = {expression}", **names)["result"] == expected, expression


@pytest.fixture
def full():
    """Return the chip's out-of-memory error."""
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(1 << 60, dtype=torch.int8, device=CHIP)
    return caught.value


@pytest.mark.parametrize(
    "expression",
    [
        "'CUDA out of memory' in str(error)",
        "'CUDA out of memory.' in error.args[0]",
        "'CUDA error: out of memory' in repr(error)",
        "'cuda out of memory' in str(error).lower()",
        "not ('CUDA out of memory' not in f'{error}')",
        "str(error).startswith('CUDA out of memory. ')",
        "any(words in str(error) for words in ['CUDA out of memory', 'other'])",
        "'out of memory' in str(error)",
        "re.search('CUDA out of memory', str(error)) is not None",
    ],
)
def test_the_out_of_memory_error_has_cudas_message(cuda, full, expression):
    assert run(f"result = {expression}", error=full, re=re)["result"] is True


@pytest.mark.parametrize(
    "expression",
    [
        "'CUDA out of memory' in str(RuntimeError('chip 0 has no such stream'))",
        "'CUDA out of memory' in str(RuntimeError('the host is out of memory'))",
        "'CUDA out of memory' in ['chip 0 is out of memory']",
        "str(ValueError('chip 0 is out of memory')).startswith('CUDA')",
        "'CUDA out of memory' == 'chip 0 is out of memory'",
        "str('chip 0 is out of memory').startswith('CUDA')",
    ],
)
def test_other_errors_do_not_have_cudas_message(cuda, expression):
    assert run(f"result = {expression}")["result"] is False


def test_outside_the_scope_the_out_of_memory_error_is_not_changed(full):
    with shim.enter():
        function = run("def f(e): return 'CUDA out of memory' in str(e), 'CUDA out of memory' in e.args[0]")[
            "f"
        ]
        assert function(full) == (True, True)
    assert function(full) == (False, False)


def test_packed_sequences(cuda):
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2, 1, device="cuda")])
    assert run("result = packed.is_cuda", packed=packed)["result"] is True


class Thing:
    type = "chip"
    is_cuda = False

    def __str__(self):
        return "a thing"


def test_everything_else_is_unchanged(cuda):
    thing = Thing()
    source = """
first = thing.type, thing.is_cuda, str(thing), str(5), str(b"a", "ascii"), getattr(thing, "type")
thing.type = 3
thing.type += 1
del thing.type
second = thing.type
class Local:
    type: int = 7
    def read(self): return self.type
third = Local().read(), Local.type
"""
    names = run(source, thing=thing)
    assert names["first"] == ("chip", False, "a thing", "5", "a", "chip")
    assert names["second"] == "chip" and names["third"] == (7, 7)


def test_a_shadowed_str_is_the_users(cuda):
    source = "def f(str): return str(device)\nresult = f(lambda value: 'mine')"
    assert run(source, device=torch.device("cuda"))["result"] == "mine"


def test_patterns_keep_their_attributes(cuda):
    source = """
def f(value, kinds):
    match value:
        case kinds.type:
            return "matched"
        case str() if other.type == "cuda":
            return "guard"
"""
    function = run(source, other=torch.device("cuda"))["f"]

    class Kinds:
        type = "a"

    assert function("a", Kinds) == "matched" and function("b", Kinds) == "guard"


def test_patterns_of_devices(cuda):
    source = """
def f(value):
    match value:
        case torch.device(type="cuda" | "xpu", index=1):
            return "second"
        case (torch.device(type=kind), _) if kind == "cuda":
            return kind
        case torch.device(type="cpu"):
            return "host"
        case other.device(type="chip"):
            return "theirs"
"""

    class Other:
        device = Thing

    function = run(source, torch=torch, other=Other)["f"]
    assert [function(torch.device(name)) for name in ("cuda:1", "cpu", "cuda")] == ["second", "host", None]
    assert function((torch.device("cuda"), 0)) == "cuda" and function(Thing()) == "theirs"


def test_source_given_as_text_sees_the_names_of_its_caller(cuda):
    source = """
from __future__ import annotations

def f(x):
    local = 2
    exec("def g(y: undefined): return y.is_cuda", globals())
    exec("assert local == 2 and x.is_cuda")
    return g(x), eval("x.device.type, local")
class Local:
    exec("kind = device.type")
"""
    names = run(source, device=torch.device("cuda"))
    assert names["f"](torch.ones(1, device="cuda")) == (True, ("cuda", 2)) and names["Local"].kind == "cuda"
    with pytest.raises(SyntaxError) as caught:
        run("eval('x.type ==')")
    assert caught.value.filename == "<string>" and caught.value.lineno == 1


def test_errors_are_the_plain_ones(cuda):
    with pytest.raises(AttributeError, match="'int' object has no attribute 'type'"):
        run("(3).type")
    with pytest.raises(AttributeError, match="'int' object has no attribute 'is_cuda'"):
        run("(3).is_cuda")
    with pytest.raises(TypeError):
        run("str(1, 2, 3, 4)")


# ---- the source ----------------------------------------------------------------------------------------------
def test_lines_and_columns_stay():
    source = "import torch\n\nif a.b.type == 'cuda' and x.is_cuda:\n    y = str(\n        z\n    )\n"
    before = {(n.lineno, n.col_offset) for n in ast.walk(ast.parse(source)) if isinstance(n, ast.stmt)}
    after = {
        (n.lineno, n.col_offset) for n in ast.walk(rewrite(ast.parse(source))) if isinstance(n, ast.stmt)
    }
    assert before == after


def test_a_traceback_shows_the_users_line(cuda, module):
    user = module("\n\ndef f(x):\n    return x.device.type + 1  # here\n")
    with pytest.raises(TypeError) as caught:
        user.f(torch.ones(1))
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.lineno, last.line) == (4, "return x.device.type + 1  # here")
    assert linecache.getline(user.__file__, 4) == "    return x.device.type + 1  # here\n"


def test_unaffected_files_are_not_parsed():
    assert not worth_parsing(b"import os\nprint(os.getcwd())\nastype = 1\n")
    assert not worth_parsing(b"print(f'{name}', '%d' % 3)\n")
    for source in (b"a.type", b"x.is_cuda", b"str (x)", b"torch.version.cuda", b"device = f'{x}'"):
        assert worth_parsing(source)


def test_a_syntax_error_is_pythons_own(cuda, module):
    with pytest.raises(SyntaxError) as caught:
        module("x.type ==\n")
    assert caught.value.lineno == 1 and caught.value.filename.endswith("user_module.py")


def test_encodings_are_respected(cuda, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "latin.py").write_bytes("# -*- coding: latin-1 -*-\ntext = 'é', str(1)\n".encode("latin-1"))
    assert importlib.import_module("latin").text == ("é", "1")
    sys.modules.pop("latin")


# ---- which modules -------------------------------------------------------------------------------------------
def test_which_files_are_the_users(tmp_path):
    assert import_hook.is_users(str(tmp_path / "train.py"))
    for path in (torch.__file__, ast.__file__, pytest.__file__, import_hook.__file__, sys.executable):
        assert not import_hook.is_users(path), path
    assert not import_hook.is_users(str(tmp_path / "lib" / "site-packages" / "thing.py"))


def test_the_hook_loads_only_the_users_modules(cuda, module, tmp_path):
    user = module("import torch\nanswer = torch.ones(1, device='cuda').is_cuda\n")
    assert user.answer is True and isinstance(user.__loader__, import_hook.Loader)
    assert "__isthmus_is_cuda__" not in vars(user)
    assert not list(tmp_path.rglob("*.pyc")), "rewritten byte code must not be cached"
    plain = module("answer = 1\n", "plain_module")
    assert type(plain.__loader__).__name__ == "SourceFileLoader"


def test_packages_and_relative_imports(cuda, tmp_path, monkeypatch):
    package = tmp_path / "user_package"
    package.mkdir()
    (package / "__init__.py").write_text("from .inner import f\n")
    (package / "inner.py").write_text("def f(x): return x.is_cuda\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert importlib.import_module("user_package").f(torch.ones(1, device="cuda")) is True
    for name in [name for name in sys.modules if name.startswith("user_package")]:
        del sys.modules[name]


def test_after_the_scope_rewritten_functions_give_plain_answers(module):
    with shim.enter():
        user = module("def f(x): return x.device.type, x.is_cuda, str(x.device)\n")
        x = torch.ones(1, device="cuda")
        assert user.f(x) == ("cuda", True, "cuda:0")
    assert user.f(x) == ("chip", False, "chip:0")
    with shim.enter(rewrite=False):
        assert module("import torch\na = torch.device('cuda').type\n", "other_module").a == CHIP


def test_compiled_functions_with_rewritten_source(cuda, module):
    user = module("def f(x):\n    return x * 2 if x.is_cuda and x.device.type == 'cuda' else x\n")
    compiled = torch.compile(user.f, backend="aot_eager", fullgraph=True)
    assert compiled(torch.ones(2, device="cuda")).tolist() == [2.0, 2.0]


def test_when_imported_calls_once_after_the_module(module, tmp_path):
    from isthmus_common.patches import Scope

    seen = []
    with Scope("test") as scope:
        scope.when_imported("late_module", lambda: seen.append(sys.modules["late_module"].value), "test")
        module("value = 1\nvalue = 2\n", "late_module")
        scope.when_imported("late_module", lambda: seen.append("at once"), "test")
    assert seen == [2, "at once"]


def test_a_library_that_only_looks_up_a_module_does_not_consume_the_hook(module, tmp_path):
    from importlib.util import find_spec

    from isthmus_common.patches import Scope

    seen = []
    with Scope("test") as scope:
        scope.when_imported("asked_module", lambda: seen.append("imported"), "test")
        (tmp_path / "asked_module.py").write_text("")
        assert find_spec("asked_module") is not None
        assert seen == []
        module("", "asked_module")
        assert seen == ["imported"]
        entries = [getattr(finder, "module", "") for finder in sys.meta_path]
        assert "asked_module" not in entries
