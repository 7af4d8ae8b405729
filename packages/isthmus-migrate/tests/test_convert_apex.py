"""apex.amp and its classes: the converted source trains, and what has no counterpart is left with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from isthmus_migrate.convert import project
from isthmus_migrate.convert.engine import Result, convert_source
from isthmus_migrate.rules.apex_amp import ApexAmp
from isthmus_migrate.rules.apex_imports import ApexImports
from isthmus_migrate.rules.apex_modules import ApexModules
from isthmus_migrate.source.findings import LEFT, Finding, Severity

SCRIPT = """\
import torch
from apex import amp

torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
x, y = torch.randn(16, 4), torch.randint(0, 2, (16,))
losses = []
for step in range(8):
    out = model(x)
    loss = torch.nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
    optimizer.step()
    losses.append(loss.item())
"""


def converted(source: str) -> Result:
    return convert_source(source, "train.py", rules=[ApexAmp, ApexImports], target="cpu")


def left(result: Result) -> list[Finding]:
    """Findings that the conversion leaves to a person."""
    return [each for each in result.findings if each.severity in LEFT]


@pytest.mark.parametrize("level", ["O0", "O1", "O2"])
def test_the_converted_script_trains(level: str) -> None:
    result = converted(SCRIPT.replace("O1", level))
    assert not left(result)
    assert "amp.initialize" not in result.text
    names: dict[str, list[float]] = {}
    exec(compile(result.text, "train.py", "exec"), names)
    expected: dict[str, list[float]] = {}
    exec(compile(_in_float32(), "train.py", "exec"), expected)
    tolerance = 0.0 if level == "O0" else 2e-3  # float16 has eleven bits
    assert names["losses"] == pytest.approx(expected["losses"], rel=tolerance, abs=0.0)
    assert names["losses"][-1] < names["losses"][0]


def _in_float32() -> str:
    """The script without apex."""
    replaced = SCRIPT.replace("with amp.scale_loss(loss, optimizer) as scaled_loss:", "if True:")
    replaced = replaced.replace("scaled_loss.", "loss.").replace(
        "amp.master_params(optimizer)", "model.parameters()"
    )
    return "\n".join(line for line in replaced.splitlines() if "amp" not in line)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"O1"', '"O3"', "opt level 'O3' has no counterpart"),
        ('"O1"', '"O1", loss_scale=128.0', "the loss scale may be fixed"),
        ("model, optimizer = amp", "net, optimizer = amp", "not given one model and one optimizer"),
        ("    out = model(x)\n", "    out = run(x)\n", "the model does not run in the same block"),
        ("scaled_loss.backward()", "scaled_loss.backward(); print(scaled_loss)", "more than backward()"),
        (
            "losses = []",
            "losses = []\namp.register_float_function(torch, 'sigmoid')",
            "register_float_function",
        ),
        ("losses = []", "scaler = 2", "defines a scaler itself"),
        ("optimizer.step()", "optimizer.step(closure)", "step has arguments"),
    ],
)
def test_calls_without_a_counterpart_are_not_converted(old: str, new: str, reason: str) -> None:
    source = SCRIPT.replace(old, new)
    assert source != SCRIPT
    result = converted(source)
    assert (result.text, list(result.changes)) == (source, [])
    (finding,) = left(result)
    assert reason in finding.message
    assert finding.code == "IM230"


@pytest.mark.parametrize(
    "call",
    [
        "FusedAdam(p, bias_correction=False)",
        "FusedAdam(p, 1e-3, True)",
        "FusedSGD(p, wd_after_momentum=True)",
    ],
)
def test_arguments_without_a_counterpart_are_not_converted(call: str) -> None:
    source = f"from apex.optimizers import FusedAdam, FusedSGD\n{call}\n"
    result = convert_source(source, "train.py", rules=[ApexModules])
    assert (result.text, list(result.changes)) == (source, [])
    assert [finding.line for finding in left(result)] == [2]


def test_fused_adam_has_the_defaults_of_apex() -> None:
    source = "from apex.optimizers import FusedAdam\noptimizer = FusedAdam(parameters)\n"
    names: dict[str, object] = {"parameters": [torch.nn.Parameter(torch.ones(2))], "torch": torch}
    exec(convert_source(source, "train.py", rules=[ApexModules, ApexImports]).text, names)
    optimizer = names["optimizer"]
    assert isinstance(optimizer, torch.optim.AdamW)
    assert optimizer.defaults["weight_decay"] == 0.0


@pytest.mark.parametrize(
    ("use", "severity"),
    [
        ("optimizer = FusedAdam(p, lr=1e-3)", Severity.REVIEW),
        ("optimizer = FusedAdam(p) if FusedAdam is not None else torch.optim.AdamW(p)", Severity.NONE),
    ],
)
def test_an_optional_optimizer_stays_the_one_that_was_asked_for(
    tmp_path: Path, use: str, severity: Severity
) -> None:
    source = (
        "import torch\n\ntry:\n    from apex.optimizers import FusedAdam, FusedLAMB\nexcept ImportError:\n"
        f"    FusedAdam = None\n    FusedLAMB = None\n\n{use}\n"
    )
    (tmp_path / "a.py").write_text(source)
    (result,) = project.convert(tmp_path, project.Request())
    assert result.after == source.encode()
    ends = [(each.line, each.subject, each.severity) for each in result.findings]
    assert (9, "apex.optimizers.FusedAdam", severity) in ends
    assert (4, "apex.optimizers.FusedLAMB", Severity.REVIEW) in ends
    assert len([each for each in result.findings if each.line == 4]) == 1
