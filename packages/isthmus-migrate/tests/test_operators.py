"""Operators that a target lacks or runs on the CPU: names that reach them, and their routes on a device."""

import json
import stat
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from isthmus_migrate.analyse import engine, operators, probe, targets
from isthmus_migrate.analyse.probe import Reach
from isthmus_migrate.analyse.targets import Troubles, classify, troubles
from isthmus_migrate.source.findings import Finding, Severity

REACHED = {
    "torch.linalg.eigh": {"aten::_linalg_eigh": "always", "aten::bmm": "backward"},
    "torch.nn.Fold": {"aten::im2col": "backward", "aten::col2im": "sometimes"},
    "torch.Tensor.geqrf": {"aten::geqrf": "always"},
    "torch.Tensor.add": {"aten::add.Tensor": "always"},
    "torch.optim.Adam": {"aten::add_.Tensor": "sometimes"},
}
TROUBLES = Troubles(
    "npu",
    {
        "aten::_linalg_eigh": ("none", "no kernel"),
        "aten::im2col": ("fallback", "CPU fallback"),
        "aten::col2im": ("fallback", "CPU fallback"),
        "aten::geqrf": ("none", "no kernel"),
    },
)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A table that would take a minute to probe."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = operators.cache()
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(REACHED))
    monkeypatch.setattr(operators, "ask", lambda target: TROUBLES._replace(device=target))


def findings(root: Path, text: str, target: str = "npu", **options: bool) -> list[Finding]:
    folder = root / "project"
    folder.mkdir()
    (folder / "a.py").write_text(text)
    found = engine.analyse(folder, target=target, processes=1, **options).findings
    return [each for each in found if each.code.startswith("IM5")]


# ---- findings ------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("tables")
def test_an_operator_that_the_target_lacks_is_manual(tmp_path: Path):
    (found,) = findings(tmp_path, "from torch.linalg import eigh\nv, w = eigh(a)\n")
    assert (found.code, found.severity, found.subject, found.line) == (
        "IM501",
        Severity.MANUAL,
        "torch.linalg.eigh",
        2,
    )
    assert found.message == "reaches aten::_linalg_eigh, which npu lacks (no kernel)"


@pytest.mark.usefixtures("tables")
def test_an_operator_that_runs_on_the_cpu_is_for_review_with_its_condition(tmp_path: Path):
    (found,) = findings(tmp_path, "from torch import nn\nf = nn.Fold(2, 2)\n")
    assert (found.code, found.severity) == ("IM502", Severity.REVIEW)
    assert found.message == (
        "may reach aten::col2im, its gradient reaches aten::im2col, "
        "which npu runs by fallback on the CPU (CPU fallback)"
    )


@pytest.mark.usefixtures("tables")
def test_a_method_of_an_unknown_object_is_for_review(tmp_path: Path):
    (found,) = findings(tmp_path, "import torch\ndef f(x):\n    x.add(1)\n    return x.geqrf()\n")
    assert (found.code, found.severity, found.line) == ("IM501", Severity.REVIEW, 4)
    assert found.advice.startswith("if it is a tensor's: ")


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    ("text", "target", "probes"),
    [
        ("import torch\ntorch.linalg.eigh(a)\n", "npu", False),  # --no-probe
        ("import torch\ntorch.linalg.eigh(a)\n", "", True),  # no target
        ("import torch\ntorch.some_future_name(a)\ntorch.optim.Adam(p)\n", "npu", True),
        ("from numpy.linalg import eigh\neigh(a)\n", "npu", True),
    ],
)
def test_nothing_else_is_found(tmp_path: Path, text: str, target: str, probes: bool):
    assert not findings(tmp_path, text, target, probe=probes)


@pytest.mark.full
def test_an_unknown_target_is_reported_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert not findings(tmp_path, "import torch\ntorch.linalg.eigh(a)\n", "npu")
    line = "isthmus: operators are not checked: this PyTorch has no device of type npu; install its plugin\n"
    assert capsys.readouterr().err == line


# ---- what a device does with an operator ---------------------------------------------------------------------
def test_the_chips_routes_are_queried_in_another_process(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ISTHMUS_ROUTE", "aten::_linalg_eigh=fallback")
    found = operators.ask("chip")
    missing = {name: route for name, route in torch.chip.routes().items() if route[0] == "none"}
    assert found.device == "chip (driver host)"
    assert found.operators.items() >= missing.items()
    assert found.operators["aten::_linalg_eigh"] == ("fallback", "forced")


def test_the_dispatcher_is_queried_for_other_devices():
    found = troubles("cpu").operators
    assert found["aten::_cslt_sparse_mm"] == ("none", "no kernel")  # CUDA's only
    assert (
        not {"aten::add.Tensor", "aten::linear", "aten::_linalg_eigh", "aten::empty.memory_format"}
        & found.keys()
    )


def test_structured_operators_need_their_out_variant():
    names = [
        "aten::add.Tensor",
        "aten::add.out",
        "aten::max.dim",
        "aten::max.dim_max",
        "aten::silu",
        "aten::silu.out",
    ]
    outs = targets._outs(names)
    assert outs == {names[0]: names[1], names[2]: names[3], names[4]: names[5]}


@pytest.mark.skipif(torch.version.cuda is not None, reason="this PyTorch is built for CUDA")
def test_a_device_without_kernels_is_not_judged():
    with pytest.raises(LookupError, match="no kernels for cuda"):
        troubles("cuda")


@pytest.mark.parametrize(
    ("registration", "route"),
    [
        ("registered at a/b/RegisterCPU_2.cpp:8895 [kernel]", "kernel"),
        ("registered at a/RegisterCompositeImplicitAutograd_0.cpp:52 [math kernel]", "composite"),
        ("registered at a/RegisterCompositeExplicitAutograd_0.cpp:52 [default backend kernel]", "composite"),
        ("at RegisterCompositeExplicitAutogradNonFunctional_0.cpp:1 [default backend kernel]", "structured"),
        ("registered at plugin/NPUFallback.cpp:7 [backend fallback]", "fallback"),
        ("registered at plugin/VariableFallbackKernel.cpp:7 [kernel]", "fallback"),
        ("fallthrough registered at a/Fallthrough.cpp:1 [backend fallback]", "none"),
        ("", "none"),
    ],
)  # fmt: skip
def test_registrations_of_the_dispatcher_are_classified(registration: str, route: str):
    assert classify(registration)[0] == route


# ---- what a name reaches -------------------------------------------------------------------------------------
def test_a_sample_shows_the_operators_of_a_call_and_its_gradient():
    reach = Reach()
    reach.whole = True
    a = torch.randn(3, 3, requires_grad=True)
    reach.run(lambda: torch.linalg.eigh(a + a.T))
    reach.run(lambda: torch.linalg.eigh((a + a.T) * 2))
    reach.run(lambda: torch.linalg.eigh(a, "neither"))  # raises: does not count
    table = reach.table()
    assert table["aten::_linalg_eigh"] == "always"
    assert table["aten::mul.Tensor"] == "sometimes"
    assert table["aten::mm"] == "backward"


def test_operators_of_one_variant_are_not_reached_by_every_call():
    reach = Reach()
    reach.run(lambda: torch.add(torch.ones(1), 1))
    assert reach.table() == {"aten::add.Tensor": "sometimes", "aten::ones": "sometimes"}


def test_the_sample_inputs_of_optimizers_are_run_as_loops_and_over_lists():
    reach = Reach()
    for entry in probe._optimizers():
        if entry.name == "torch.optim.SGD":
            for call in entry.calls():
                reach.run(call)
    table = reach.table()
    assert table["aten::add_.Tensor"] == table["aten::_foreach_add_.List"] == "sometimes"


def test_the_table_is_generated_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    short = tmp_path / "short.py"
    short.write_text(
        "import json, sys\nfrom pathlib import Path\nfrom isthmus_common.files import write_file\n"
        "write_file(Path(sys.argv[1]), json.dumps({'torch.add': {}}).encode())\n"
    )
    monkeypatch.setattr(operators, "_command", partial(_command_of, short))
    assert operators.table() == operators.table() == {"torch.add": {}}
    assert capsys.readouterr().err.count("probing") == 1
    path = operators.cache()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o750


def _command_of(script: Path, path: Path) -> list[str]:
    return [sys.executable, str(script), str(path)]


def test_a_table_that_cannot_be_generated_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(operators, "_command", partial(_command_of, tmp_path / "absent.py"))
    with pytest.raises(LookupError, match="--no-probe"):
        operators.table()
