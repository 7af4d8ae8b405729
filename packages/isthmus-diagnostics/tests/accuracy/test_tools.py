"""check, perturb, config, monitor, export, and the commands as a user gives them."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

import isthmus_diagnostics.accuracy
from isthmus_diagnostics.accuracy import checking, dumps, msprobe, perturbing
from isthmus_diagnostics.accuracy.comparing import compare
from isthmus_diagnostics.accuracy.configuration import differences
from isthmus_diagnostics.accuracy.generators import Draws
from isthmus_diagnostics.accuracy.monitoring import _HEAD, alerts
from isthmus_diagnostics.accuracy.reading import Rank
from tests.accuracy import llama
from tests.accuracy.faults import WrongKernel
from tests.helpers import command
from tests.helpers.children import start_module
from tools.repository import ROOT

TRAIN = """
import sys
from tests.accuracy import llama
def change(model):
    model.layers[0].norm1.eps = float(sys.argv[1])
print(llama.train(1, device="cuda", hooks=[change]))
"""


def isthmus_accuracy(*arguments, status=0):
    """Return what ``isthmus accuracy arguments`` prints to stdout and stderr."""
    child = start_module("isthmus", "accuracy", *arguments)
    printed, error = child.communicate()
    assert child.returncode == status, error
    return printed, error


@pytest.fixture(scope="module")
def tensors(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensors")
    with isthmus_diagnostics.accuracy.dump(folder, "tensors", steps=[0]):
        llama.train(1)
    return folder


def test_run_and_compare(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(TRAIN)
    for name, eps in (("a", "1e-5"), ("b", "1e-6")):
        options = ("--quiet", "--dump", "statistics", "--dump-dir", str(tmp_path / name))
        done = command.run(*options, str(program), eps, PYTHONPATH=str(ROOT))
        assert done.returncode == 0, done.stderr
    text, _ = isthmus_accuracy("compare", str(tmp_path / "a"), str(tmp_path / "b"), status=3)
    assert "first difference: aten::add.Tensor in Llama.layers.0.norm1 at llama.py:" in text
    assert "other is 1e-05 in A and 1e-06 in B; its inputs were equal" in text
    printed, _ = isthmus_accuracy("config", str(tmp_path / "a"), str(tmp_path / "b"), "--json", status=3)
    assert {each["section"] for each in json.loads(printed)} == {"arguments"}


def test_check_passes_right_kernels_and_continues(tensors, tmp_path):
    out = tmp_path / "check.jsonl"
    rows = checking.check(tensors, out, "chip", "aten::*m*", calls=2)
    assert len(rows) > 10
    assert not [row for row in rows if row.verdict == "fail"]
    out.write_text("\n".join(out.read_text().splitlines()[:3]) + '\n{"key"')
    assert checking.check(tensors, out, "chip", "aten::*m*", calls=2) == rows


@pytest.mark.parametrize("kind", ["tensors", "statistics"])
def test_check_names_a_wrong_kernel(kind, tensors, tmp_path):
    folder = tensors
    if kind == "statistics":
        folder = tmp_path / "statistics"
        with isthmus_diagnostics.accuracy.dump(folder):
            llama.train(1)
    library = torch.library.Library("aten", "IMPL")
    library.impl("silu", lambda x: x * torch.sigmoid(x) * 1.001, "PrivateUse1", allow_override=True)
    try:
        rows = checking.check(folder, tmp_path / "check.jsonl", "chip", "aten::silu")
    finally:
        library._destroy()
    assert {row.verdict for row in rows} == {"fail"}
    assert rows[0].line.startswith("llama.py:")
    assert checking.table(rows)[0][0] == "aten::silu"


def test_perturb_ranks_cancellation_first(tmp_path):
    x = torch.randn(64, dtype=torch.float32) + 1e4
    with isthmus_diagnostics.accuracy.dump(tmp_path, "tensors"):
        x - x.flip(0)
        x * 2
    rows, _ = perturbing.perturb_dump(tmp_path, "*", 4, "cpu")
    assert rows[0].call.operator == "aten::sub.Tensor"
    assert rows[0].noise > 100
    assert next(row for row in rows if row.call.operator == "aten::mul.Tensor").noise < 4


def test_perturb_sums_in_another_order(tmp_path):
    x = torch.logspace(8, 0, 257) * torch.tensor([1.0, -1.0]).repeat(129)[:257]
    with isthmus_diagnostics.accuracy.dump(tmp_path, "tensors"):
        x.sum()
        x[None] @ torch.ones(257, 2)
        x.neg()
    order = {row.call.operator: row.order for row in perturbing.perturb_dump(tmp_path, "*", 9, "cpu")[0]}
    assert order["aten::sum"] > 0
    assert order["aten::mm"] > 0
    assert order["aten::neg"] == 0


def test_config_tells_weights_data_and_hyperparameters(tensors, tmp_path):
    def change(model):
        model.head.weight.data[0, 0] += 1

    with isthmus_diagnostics.accuracy.dump(tmp_path, "tensors", steps=[0]):
        llama.train(1, hooks=[change])
    found = {(each.section, each.name) for each in differences(dumps.read(tensors), dumps.read(tmp_path))}
    assert ("weights", "Llama.head.weight") in found
    assert not {name for section, name in found if section in ("data", "packages", "hyperparameters")}


def job(number=0, environment=None, random=None, drawn=None, **sections):
    """A dump of a rank without calls."""
    about = {"job": {"environment": environment or {}, "random": random or {}, **sections}}
    return Rank(Path(), number, about | ({} if drawn is None else {"drawn": drawn}))


@pytest.mark.parametrize(
    ("name", "a", "b"),
    [
        ("ISTHMUS_FAILURE_FILE", "/tmp/x/0.json", "/tmp/y/0.json"),
        ("TORCHELASTIC_RUN_ID", "3e2", "9c1"),
        ("TORCHELASTIC_ERROR_FILE", "/a/error.json", None),
        ("NCCL_COMM_ID", "127.0.0.1:4001", "127.0.0.1:4777"),
        ("HCCL_IF_BASE_PORT", "5001", "6001"),
        ("TORCHINDUCTOR_CACHE_DIR", "/tmp/a", "/tmp/b"),
        ("NCCL_DEBUG_FILE", "/tmp/nccl.17.log", "/tmp/nccl.18.log"),
        ("ISTHMUS_HEALTH_CLAIM", "17:2", "18:2"),
        ("ISTHMUS_PLAN", "/tmp/tmpab3k_q7z/plan.json", "/tmp/tmpzz91xx_a/plan.json"),
        ("TORCH_HOME", "/tmp/tmp.Ab3dE6gH1j", "/tmp/tmp.0000000000"),
    ],
)
def test_config_leaves_out_what_belongs_to_a_launch(name, a, b):
    sides = [job(environment={} if value is None else {name: value}) for value in (a, b)]
    assert differences(*([side] for side in sides)) == []


@pytest.mark.parametrize(
    ("name", "a", "b"),
    [
        ("CUBLAS_WORKSPACE_CONFIG", ":16:8", None),
        ("ISTHMUS_ROUTE", "aten::mm=fallback", None),
        ("ISTHMUS_DRIVER", "/opt/a/driver.toml", "/opt/b/driver.toml"),
        ("NCCL_ALGO", "Ring", "Tree"),
        ("ISTHMUS_DEBUG", "fallback:*", None),
        ("NCCL_TOPO_FILE", "/etc/a.xml", "/etc/b.xml"),
    ],
)
def test_config_lists_variables_that_matter(name, a, b):
    sides = [job(environment={} if value is None else {name: value}) for value in (a, b)]
    assert [(s.name, s.a, s.b) for s in differences(*([side] for side in sides))] == [(name, a, b)]


@pytest.mark.parametrize(
    ("drawn", "listed"),
    [
        (({"numpy": False}, {"numpy": False}), False),
        (({"numpy": False}, {"numpy": True}), True),
        (({"numpy": True}, {"numpy": True}), True),
        ((None, None), True),  # not known
    ],
)
def test_config_lists_states_of_generators_that_are_drawn_from(drawn, listed):
    sides = [job(random={"numpy": state}, drawn=each) for state, each in zip("ab", drawn, strict=True)]
    assert bool(differences(*([side] for side in sides))) is listed


def test_config_compares_every_rank():
    sides = [[job(0, random={"torch": "7"}), job(1, random={"torch": state})] for state in ("8", "7")]
    assert [(s.name, s.a, s.b) for s in differences(*sides)] == [("rank 1 torch", "8", "7")]


def test_draws_are_told_from_seeds():
    draws = Draws()
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    draws.update()
    assert draws.drawn == {"python": False, "numpy": False, "torch": False, "accelerator": False}
    assert not draws.update()
    random.gauss(0, 1)
    assert draws.update()
    torch.rand(1, device="chip")
    np.random.rand()
    assert draws.update()
    random.seed(6)
    torch.randperm(3)
    assert draws.update()
    assert draws.drawn == {"python": True, "numpy": True, "torch": True, "accelerator": True}


def test_equal_jobs_have_no_different_setting(tmp_path):
    for name in "ab":
        random.seed()  # each process does the same
        np.random.seed()
        with isthmus_diagnostics.accuracy.dump(tmp_path / name):
            llama.train(1)
    assert differences(dumps.read(tmp_path / "a"), dumps.read(tmp_path / "b")) == []


def test_monitor_alerts_and_is_switched_by_its_file(tmp_path):
    spoil = WrongKernel("aten::silu", lambda out, *_: out * float("nan"), 5)
    with isthmus_diagnostics.accuracy.monitor(tmp_path, interval=1), spoil:
        llama.train(3)
        (tmp_path / "monitor.json").write_text('{"enabled": false}')
        llama.train(1)
        llama.train(2)
    rows = (tmp_path / "rank-0.csv").read_text().splitlines()
    assert rows[0].startswith("step,kind,name,min,max,mean,norm,nans")
    assert {row.split(",")[0] for row in rows[1:]} == {"0", "1", "2", "3"}
    found = alerts(tmp_path)
    assert (found[0].step, found[0].kind) == (2, "nan")


def test_monitor_tells_replicas_that_differ(tmp_path, monkeypatch):
    for rank in ("0", "1", "2"):
        monkeypatch.setenv("RANK", rank)

        def change(model, rank=rank):
            if rank == "1":
                model.norm.weight.data[3] += 1e-6

        with isthmus_diagnostics.accuracy.monitor(
            tmp_path, interval=1, what=["weight"], names="*norm.weight"
        ):
            llama.train(1, hooks=[change])
    found = alerts(tmp_path)
    assert [(each.kind, each.rank, each.name) for each in found] == [("replicas", 1, "Llama.norm.weight")]


@pytest.mark.parametrize(
    ("bits", "rank", "text"),
    [
        ("ab", None, "ranks 0 and 1 differ in w; no majority"),
        ("aab", 2, "ranks [2] differ from the others in w"),
        ("baa", 0, "ranks [0] differ from the others in w"),
        ("abc", None, "ranks 0, 1 and 2 differ in w; no majority"),
        ("abab", None, "ranks [0, 2] and [1, 3] differ in w; no majority"),
        ("abaa", 1, "ranks [1] differ from the others in w"),
        ("abca", None, "ranks [0, 3], 1 and 2 differ in w; no majority"),
        ("aabaaaaaaaab", 2, "ranks [2, 11] differ from the others in w"),
    ],
)
def test_monitor_accuses_a_minority_only(bits, rank, text, tmp_path):
    for number, each in enumerate(bits):
        row = ",".join(["100", "weight", "w", *["0"] * 7, f"{ord(each):016x}"])
        (tmp_path / f"rank-{number}.csv").write_text(f"{','.join(_HEAD)}\n{row}\n")
    assert [(each.step, each.rank, each.text) for each in alerts(tmp_path)] == [(100, rank, text)]


def test_layout_of_msprobe_is_written_and_read(tensors, tmp_path):
    msprobe.write(dumps.read(tensors), tmp_path / "out")
    document = json.loads((tmp_path / "out" / "step0" / "rank0" / "dump.json").read_text())
    entry = document["data"]["Module.layers.0.norm1.Norm.forward.0"]
    assert entry["output"][0].keys() == set("type dtype shape Max Min Mean Norm requires_grad".split())
    found = compare(tensors, tmp_path / "out")
    modules = [row for row in found.rows if row.pair.is_matched]
    assert len(modules) == 31
    assert found.guilty is None


def test_dump_of_msprobe_is_compared(tensors, tmp_path):
    """Entries as mindstudio-probe 26.2.0 writes them."""
    place = tmp_path / "step0" / "rank0"
    place.mkdir(parents=True)
    x = dumps.read(tensors)[0]
    norm = next(c for c in x.calls if c.operator == "module" and c.place.module == "Llama.layers.0.norm1")

    def tensor(content, factor=1.0):
        s = content.statistics
        return {
            "type": "torch.Tensor", "dtype": "torch.float32", "shape": list(content.shape), "Max": s.max * factor,
            "Min": s.min * factor, "Mean": s.mean * factor, "Norm": s.norm * factor, "requires_grad": True,
        }  # fmt: skip

    name = "Module.layers.0.norm1.Norm.forward.0"
    for factor, accused in ((1.0, False), (1.01, True)):
        entry = {
            "input_args": [tensor(norm.inputs["input[0]"])],
            "input_kwargs": {},
            "output": [tensor(norm.outputs["output"], factor)],
        }
        document = {"task": "statistics", "level": "mix", "framework": "pytorch", "data": {name: entry}}
        (place / "dump.json").write_text(json.dumps(document))
        frame = "File /home/me/train.py, line 12, in step, \n loss = model(x)"
        (place / "stack.json").write_text(json.dumps({"0": [[name], [frame]]}))
        (place / "construct.json").write_text(json.dumps({name: "Module.layers.0.Layer.forward.0"}))
        found = compare(tmp_path, tensors)
        assert (found.guilty is not None) == accused
    assert found.guilty.call.line == "train.py:12"


def test_commands_refuse_what_is_no_dump(tmp_path):
    for arguments in (("compare", str(tmp_path), str(tmp_path)), ("check", str(tmp_path / "none"))):
        _, error = isthmus_accuracy(*arguments, status=1)
        assert error.count("\n") == 1
        assert "isthmus run --dump" in error
