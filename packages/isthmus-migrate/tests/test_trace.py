"""``isthmus migrate trace``: what it records, and that tracing does not change a script."""

import ast
import copy
import functools
import json
import operator
import os
import pickle
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch

from isthmus_migrate.trace import calls, generated, sinks
from isthmus_migrate.trace.evidence import VERSION, EvidenceError, load
from isthmus_migrate.trace.places import Place, Span
from isthmus_migrate.trace.positions import Source
from isthmus_migrate.trace.text import Traced, traced
from tests.helpers.command import isthmus


def place(source='"cuda"', kind="string"):
    return Place("train.py", Span(1, 1, 1, 7), kind, source)


def text(value="cuda:0", *origins):
    return traced(value, frozenset(origins or (place(),)))


# ---- traced text behaves as str ------------------------------------------------------------------------------
def test_traced_text_is_equal_to_the_text():
    found = text("cuda")
    assert type(found) is Traced and isinstance(found, str) and found.__class__ is str
    assert (
        found == "cuda"
        and "cuda".__eq__(found)
        and not operator.ne(found, "cuda")
        and hash(found) == hash("cuda")
    )
    assert {"cuda": 1}[found] == {found: 1}["cuda"] == 1 and found in ["cuda"] and found in {"cuda"}
    assert repr(found) == "'cuda'" and json.dumps({found: [found]}) == '{"cuda": ["cuda"]}'
    assert type(str(found)) is str, "str(x) of other modules gives an exact str"
    assert np.array([found]).dtype == np.dtype("<U4")
    match found:
        case "cuda":
            pass
        case _:
            pytest.fail("the pattern did not match")


def test_copies_and_pickles():
    found = text("cuda")
    assert type(pickle.loads(pickle.dumps(found))) is str
    assert copy.copy(found) is copy.deepcopy(found) is found


def test_dispatch_on_the_type():
    @functools.singledispatch
    def kind(value):
        return "other"

    kind.register(str)(lambda value: "text")
    assert kind(text()) == "text"


@pytest.mark.parametrize(
    "make",
    [
        lambda it: it + ":1",
        lambda it: "my " + it,
        lambda it: operator.mod("%s:1", it),
        lambda it: it[:4],
        lambda it: it.split(":")[0],
        lambda it: it.partition(":")[0],
        lambda it: it.replace("0", "1"),
        lambda it: it.upper(),
        lambda it: it.strip(),
        lambda it: it.removesuffix(":0"),
        lambda it: f"{it}",
        lambda it: f"{it:>10}",
        lambda it: it * 1,
        lambda it: it.format(),
        lambda it: it.join("ab"),
    ],
)
def test_made_text_keeps_the_origins(make):
    origin = place()
    found = make(text("cuda:0", origin))
    assert type(found) is Traced and found.origins == {origin} and found == make("cuda:0")


def test_errors_are_those_of_str():
    for wrong in (
        lambda it: it + 1,
        lambda it: 1 + it,
        lambda it: it["a"],
        lambda it: operator.mod("%d", it),
    ):
        messages = []
        for each in ("cuda", text("cuda")):
            with pytest.raises(TypeError) as raised:
                wrong(each)
            messages.append(str(raised.value))
        assert messages[0] == messages[1]

    class Right:
        def __radd__(self, other):
            return f"right of {other}"

    assert text("cuda") + Right() == "right of cuda"


def test_text_without_a_device_is_not_traced():
    weak = Place("train.py", Span(1, 1, 1, 7), "string", '"a"', strong=False)
    assert type(traced("a b", frozenset((weak,)))) is str
    assert type(traced("cuda", frozenset((weak,)))) is Traced, "parts may make a device"


# ---- where exact strings are needed --------------------------------------------------------------------------
def test_files_have_exact_strings(tmp_path):
    found = text("cuda")
    saved = {"device": found, "x": [1, (found, torch.ones(2))], found: torch.ones(1)}
    kept = sinks.without_traces(saved)
    assert type(kept["device"]) is type(kept["x"][1][0]) is str and kept == saved
    assert kept["x"][1][1] is saved["x"][1][1] and all(type(key) is str for key in kept)
    same = {"a": [1]}
    assert sinks.without_traces(same) is same and sinks.without_traces(same)["a"] is same["a"]
    state = torch.nn.Linear(1, 1).state_dict()
    assert sinks.without_traces(state) is state
    state[text("cuda.weight")] = torch.ones(1)
    state._metadata[text("cuda")] = {}
    clean = sinks.without_traces(state)
    assert type(clean) is type(state) and clean._metadata == state._metadata
    torch.save(clean, tmp_path / "state.pt")
    assert "cuda.weight" in torch.load(tmp_path / "state.pt", weights_only=True)


def test_pytorch_takes_traced_text():
    found = text("cpu", place('"cuda"'))
    assert torch.zeros(1, device=found).device == torch.device(found) == torch.ones(1).to(found).device
    assert torch.einsum(text("ij->i"), torch.ones(2, 2)).shape == (2,)


# ---- what is called by instrumented source -------------------------------------------------------------------
def test_a_sink_gets_plain_text_and_records_names_of_devices_only():
    seen = []
    function = sinks.sink("torch.load", lambda *args, **kwargs: seen.append((args, kwargs)))
    path, device = place('"model_cuda.pt"'), place()
    function(text("model_cuda.pt", path), map_location={text("cuda:0", device): text("cuda:0", device)})
    ((args, kwargs),) = seen
    assert [type(each) for each in (*args, *kwargs["map_location"])] == [str, str]
    assert device.sinks == {("device", "torch.load"): 2} and not path.sinks


def test_generated_source_has_the_origins_of_its_text(monkeypatch):
    for name, function in calls.NAMES.items():
        monkeypatch.setattr("builtins." + name, function, raising=False)
    origin = place()
    code = text("def f(x='cuda:1'):\n    'cuda'\n    return x, f'{x}'\n", origin)
    scope = {}
    exec(generated.code(exec, code), scope)
    assert scope["f"]()[0] == "cuda:1" and scope["f"]()[0].origins == {origin} and origin.uses == {"exec": 1}
    assert eval(generated.code(eval, text(" 'cuda'", origin))) == "cuda"
    with pytest.raises(SyntaxError):
        eval(generated.code(eval, text("cuda =", origin)))
    assert generated.code(print, code) is code, "only Python's own exec and eval"
    compiled = generated.compile_text(compile, text("'cuda'", origin), "<x>", "eval")
    assert eval(compiled).origins == {origin}
    compiled = generated.compile_text(compile, text("'cuda'", origin), "<x>", "eval", dont_inherit=True)
    assert eval(compiled).origins == {origin}


def test_positions_are_in_characters():
    data = 'é = f"ü{x}"; y = "cuda"\n'.encode()
    source = Source(data)
    node = next(each for each in ast.walk(ast.parse(data)) if getattr(each, "value", "") == "cuda")
    assert (
        source.span(node) == (1, 18, 1, 24)
        and source.text(source.span(node)) == '"cuda"'
        and source.holds(node)
    )
    latin = "# coding: latin-1\nx = 'é', 'cuda'\n".encode("latin-1")
    node = next(each for each in ast.walk(ast.parse(latin)) if getattr(each, "value", "") == "cuda")
    assert Source(latin).text(Source(latin).span(node)) == "'cuda'"


# ---- a project -----------------------------------------------------------------------------------------------
PROJECT = {
    "train.py": """
        import argparse
        import functools
        import json
        import sys
        from dataclasses import dataclass
        from pathlib import Path

        import torch
        from torch import nn

        import kernels
        import thirdparty

        parser = argparse.ArgumentParser()
        parser.add_argument("--device", default="cuda:0", type=str, choices=["cuda:0", "cpu"])  # default choice
        parser.add_argument("--impl", default="cuda")  # no device
        args = parser.parse_args()
        assert type(args.device) is str and sys.intern(args.device) and Path(args.impl).name == "cuda"


        @dataclass
        class Config:
            device: str = "cuda"  # dataclass


        def on(device, make=torch.zeros):
            return make(2, device=device)


        x = on(Config().device)
        x = x.to(args.device)
        y = functools.partial(on, "cuda:0")()  # partial
        z = on(f"cuda:{0}")  # index
        z = on("cuda:%d" % 0)  # percent
        z = on("{}:{}".format("cuda", 0))  # format
        table = {"cuda": 1, "cpu": 2}  # table
        assert table[x.device.type] == 1
        names = {"cuda": "fused"}  # kernel table
        assert names[args.impl] == "fused"
        scope = {"torch": torch}
        exec("x = torch.ones(1, device='{}')".format("cuda:0"), scope)  # template
        assert scope["x"].is_cuda
        thirdparty.place("cuda:0")  # third party
        config = json.loads('{"device": "cuda"}')  # json
        on(config["device"])
        with torch.autocast("cuda", torch.bfloat16):  # autocast
            pass
        if x.device.type == "cuda":  # compared type
            print("runs on a gpu")  # printed
        if str(x.device).startswith("cuda"):  # compared text
            print(x.is_cuda)
        match x.device.type:
            case "cuda":  # pattern
                print("matched")
        kernel = kernels.Kernel().cuda()  # own class
        model = nn.Linear(1, 1).cuda()  # module
        w = x.cuda()  # tensor
        getattr(w, "cuda")()  # by name
        if args.impl == "cuda":  # compared kernel
            Path("cuda.txt")
    """,
    "kernels.py": """
        class Kernel:
            def cuda(self):
                return "__global__"
    """,
    "site-packages/thirdparty.py": """
        import torch


        def place(name):
            kind, _, index = name.partition(":")
            return torch.ones(1).to(torch.device(kind, int(index)))
    """,
}


def write(folder, files):
    for name, source in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(source).lstrip())


def record(folder, *program, status=0):
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH", ""), str(folder / "site-packages"))))
    done = isthmus("migrate", "trace", "-o", folder / "evidence.json", *program, PYTHONPATH=path)
    assert done.returncode == status, done.stderr
    return load(folder / "evidence.json"), done


def at(evidence, mark, kind, name="train.py"):
    """Return the places of a kind on the line with a comment."""
    lines = (Path(evidence.root) / name).read_text().splitlines()
    number = next(index for index, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))
    return [each for each in evidence.files[name].places if each.line == number and each.kind == kind]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    write(folder, PROJECT)
    evidence, done = record(folder, folder / "train.py")
    assert done.stdout.splitlines() == ["runs on a gpu", "True", "matched"]
    return evidence


@pytest.mark.parametrize(
    ("mark", "sink"),
    [
        ("default choice", "torch.Tensor.to"),
        ("dataclass", "torch.zeros"),
        ("partial", "torch.zeros"),
        ("percent", "torch.zeros"),
        ("format", "torch.zeros"),
        ("template", "torch.ones"),
        ("third party", "torch.device"),
        ("json", "torch.zeros"),
    ],
)
def test_a_string_is_followed_to_the_function_that_takes_the_device(project, mark, sink):
    assert any(
        sink in each.sinks.get("device", {}) and each.is_device for each in at(project, mark, "string")
    )


def test_a_format_is_followed(project):
    (index,) = at(project, "index", "format")
    assert index.source == 'f"cuda:{0}"' and index.sinks == {"device": {"torch.zeros": 1}}
    assert index.values == ("cuda:0",)
    assert at(project, "percent", "format")[0].source == '"cuda:%d" % 0'


def test_roles(project):
    (autocast,) = at(project, "autocast", "string")
    assert list(autocast.sinks) == ["device type"]
    (compared,) = at(project, "compared type", "comparison")
    assert [each.roles for each in compared.sides] == [("device type",), ()]
    assert [each.types for each in compared.sides] == [{"str": 1}, {"str": 1}]
    assert at(project, "compared type", "string")[0].compared == ("device type",)
    assert at(project, "compared text", "string")[0].compared == ("device",)
    (pattern,) = at(project, "pattern", "comparison")
    assert pattern.source == '"cuda"' and pattern.sides[0].roles == ("device type",)
    assert at(project, "table", "string")[0].compared == ("device type",)
    choice = at(project, "default choice", "string")[1]
    assert choice.source == '"cuda:0"' and choice.compared == ("device",), (
        "a choice is compared with the default"
    )


def test_text_that_is_no_device(project):
    for mark in ("no device", "kernel table", "compared kernel"):
        for each in at(project, mark, "string"):
            assert each.executed == 1 and not each.is_device
    (compared,) = at(project, "compared kernel", "comparison")
    assert not compared.is_device and compared.sides[0].values == ("cuda",)
    (printed,) = at(project, "printed", "string")
    assert printed.uses == {"print": 1} and not printed.is_device


def test_receivers(project):
    def seen(mark):
        (call,) = at(project, mark, "call")
        return call.types, list(call.members), call.is_device

    assert seen("own class") == ({"kernels.Kernel": 1}, ["kernels.Kernel.cuda"], False)
    linear = "torch.nn.modules.linear.Linear"
    assert seen("module") == ({linear: 1}, ["torch.nn.modules.module.Module.cuda"], True)
    assert seen("tensor") == ({"torch.Tensor": 1}, ["torch.Tensor.cuda"], True)
    assert seen("by name") == ({"torch.Tensor": 1}, ["torch.Tensor.cuda"], True)


def test_installed_packages_are_not_instrumented(project):
    assert sorted(project.files) == ["train.py"], "kernels.py has no place of interest"
    assert not project.untraced


# ---- the record ----------------------------------------------------------------------------------------------
def test_look_up(project):
    path = Path(project.root) / "train.py"
    found = project.file("train.py", path.read_bytes())
    assert found == project.file(path, path.read_bytes()) and project.file("other.py", b"") is None
    first = found.places[0]
    assert project.at("train.py", first.line, first.column) == first
    assert project.at(path, first.line, first.column, "call") is None
    with pytest.raises(
        EvidenceError, match=r"train.py: changed since it was traced; run `isthmus migrate trace` again"
    ):
        project.file("train.py", path.read_bytes() + b"\n")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "not a record of `isthmus migrate trace`"),
        ("[]", f"version None, expected {VERSION}"),
        ('{"version": 2}', f"version 2, expected {VERSION}"),
        ('{"version": 1}', "incomplete"),
    ],
)
def test_a_wrong_record_is_refused(tmp_path, data, message):
    (tmp_path / "evidence.json").write_text(data)
    with pytest.raises(EvidenceError, match=message):
        load(tmp_path / "evidence.json")
    with pytest.raises(EvidenceError, match="No such file"):
        load(tmp_path / "absent.json")


# ---- how a script ends ---------------------------------------------------------------------------------------
@pytest.mark.full
@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("raise SystemExit(3)", 3),
        pytest.param("raise ValueError('x')", 1, marks=pytest.mark.full),
        pytest.param("raise KeyboardInterrupt", 130, marks=pytest.mark.full),
        pytest.param("import os; os._exit(4)", 4, marks=pytest.mark.full),
    ],
)
def test_the_record_is_complete_however_the_script_ends(tmp_path, end, status):
    source = 'import torch\ntorch.zeros(1, device="cuda")  # device\ntorch.ones(1, device="aduc"[::-1])\n'
    write(tmp_path, {"train.py": f"{source}{end}\n"})
    evidence, done = record(tmp_path, tmp_path / "train.py", status=status)
    assert evidence.status == status and at(evidence, "device", "string")[0].is_device
    assert evidence.untraced == {f"torch.ones('cuda') at {tmp_path / 'train.py'}:3": 1}
    assert f"the program ended with status {status}, so later code was not executed" in done.stderr


def test_wrong_usage(tmp_path):
    done = isthmus("migrate", "trace", "absent.py")
    assert done.returncode == 2 and "absent.py: no such file" in done.stderr
    done = isthmus("migrate", "trace", "-o", tmp_path / "absent" / "e.json", "train.py")
    assert done.returncode == 2 and "no such folder" in done.stderr
    assert isthmus("migrate", "trace").returncode == 2


@pytest.mark.full
def test_processes_are_merged(tmp_path):
    source = """
        import multiprocessing
        import torch
        import torch.distributed as dist

        def work(name):
            assert torch.zeros(1).to(name).is_cuda  # worker

        if __name__ == "__main__":
            dist.init_process_group("nccl")  # backend
            x = torch.ones(1, device=f"cuda:{dist.get_rank()}")  # rank
            dist.all_reduce(x)
            assert dist.get_backend() == "nccl"  # compared
            child = multiprocessing.get_context("spawn").Process(target=work, args=("cuda:0",))  # spawned
            child.start()
            child.join()
            assert child.exitcode == 0
            dist.destroy_process_group()
    """
    write(tmp_path, {"train.py": source})
    evidence, _ = record(tmp_path, "torchrun", "--nproc-per-node", "2", tmp_path / "train.py")
    (evidence_of_backend,) = at(evidence, "backend", "string")
    assert evidence_of_backend.executed == 2 and evidence_of_backend.sinks["backend"]
    (rank,) = at(evidence, "rank", "format")
    assert sorted(rank.values) == ["cuda:0", "cuda:1"] and rank.sinks == {"device": {"torch.ones": 2}}
    assert at(evidence, "compared", "string")[0].compared == ("backend",)
    assert at(evidence, "worker", "call")
    assert at(evidence, "spawned", "string")[0].sinks == {"device": {"torch.Tensor.to": 2}}
