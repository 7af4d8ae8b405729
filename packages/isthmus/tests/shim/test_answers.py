"""Programs read the accelerator's devices and tensors as CUDA's; PyTorch reads the real names."""

import ast
import copy
import importlib
import operator
import pickle
import re
import sys

import pytest
import torch

from isthmus import shim

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
    exec(compile(source, "<test>", "exec"), names)
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
    ("eval('x.is_cuda', {'__builtins__': {}, 'x': x})", True),
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
    assert "CUDA" not in str(full)


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


# ---- who asks ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["lightning.fabric", "torchvision.ops", "torchtune", "__main__", "logging"])
def test_programs_and_installed_packages_read_cuda(cuda, name):
    names = run("read = lambda x: (x.device.type, str(x.device), x.is_cuda)", __name__=name)
    assert names["read"](torch.ones(1, device="cuda")) == ("cuda", "cuda:0", True)


@pytest.mark.parametrize(
    "name", ["torch", "torch.nn.modules.linear", "functorch", "isthmus.ops", "isthmus_migrate"]
)
def test_pytorch_and_isthmus_read_the_real_name(cuda, name):
    names = run("read = lambda x: (x.device.type, str(x.device), x.is_cuda, repr(x.device))", __name__=name)
    expected = (CHIP, "chip:0", False, "device(type='chip', index=0)")
    assert names["read"](torch.ones(1, device="cuda")) == expected


def test_generated_code_reads_as_its_caller(cuda):
    generated = run("def read(x): return x.device.type")["read"]
    caller = "def call(f, x): return f(x)"
    x = torch.ones(1, device="cuda")
    assert run(caller, __name__="torch.fx.made")["call"](generated, x) == CHIP
    assert run(caller, __name__="user")["call"](generated, x) == "cuda"


def test_every_text_of_a_device_is_the_same(cuda, capsys):
    device, x = torch.device("cuda", 0), torch.ones(1, device="cuda")
    print(device, [device], x, torch.device("cuda"))
    texts = "cuda:0 [device(type='cuda', index=0)] tensor([1.], device='cuda:0') cuda\n"
    assert capsys.readouterr().out == texts
    assert device.__str__() == str(device) == f"{device}" == format(device) == "cuda:0"
    assert device.__repr__() == repr(device) == "device(type='cuda', index=0)"
    assert x.device == device == torch.device(str(device)) and hash(x.device) == hash(device)
    assert {x.device: 1}[torch.device("cuda:0")] == 1
    assert pickle.loads(pickle.dumps(device)) == device == copy.deepcopy(device)
    assert torch.nn.Parameter(x).is_cuda and x.to_sparse().is_cuda and not x.cpu().is_cuda


def test_meshes(cuda, tmp_path):
    torch.distributed.init_process_group("nccl", init_method=f"file://{tmp_path}/s", rank=0, world_size=1)
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cuda", (1,))
        assert mesh.device_type == "cuda" and mesh._device_type == CHIP
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1).cuda())
        assert model.device_type == "cuda" and vars(model)["device_type"] == CHIP
    finally:
        torch.distributed.destroy_process_group()


def test_after_the_scope_everything_reads_the_real_name():
    before, version = vars(torch.device)["type"], torch.version.cuda
    with shim.enter():
        x = torch.ones(1, device="cuda")
        assert (x.device.type, x.is_cuda, str(x.device), torch.version.cuda) == (
            "cuda",
            True,
            "cuda:0",
            "12.8",
        )
    assert (x.device.type, x.is_cuda, str(x.device), repr(x.device)) == (
        CHIP,
        False,
        "chip:0",
        "device(type='chip', index=0)",
    )
    assert vars(torch.device)["type"] is before and torch.version.cuda == version
    assert "device='chip:0'" in repr(x)


def _depends_on_the_type(x):
    kind = "cuda" if x.is_cuda and x.device.type == "cuda" and str(x.device) != "chip:0" else "other"
    return x * 2 if kind == "cuda" and torch.nn.functional.relu(x).is_cuda else x


def test_compiled_functions_read_what_plain_ones_do(cuda):
    compiled = torch.compile(_depends_on_the_type, backend="aot_eager", fullgraph=True)
    assert compiled(torch.ones(2, device="cuda")).tolist() == [2.0, 2.0]
    assert compiled(torch.ones(2)).tolist() == [1.0, 1.0]


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
