"""Scripts converted to DistributedDataParallel train on two ranks as the original does in one process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from isthmus_migrate.convert.engine import Result, convert_source
from isthmus_migrate.source.findings import LEFT, Finding

SCRIPTS = Path(__file__).parent / "ddp_scripts"
ISTHMUS = (sys.executable, "-m", "isthmus", "run", "--quiet")
TORCHRUN = (
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--rdzv-backend=c10d",
    "--rdzv-endpoint=localhost:0",
)
NUMBER = re.compile(r"\d+\.\d{6,}")
ARGUMENTS = {
    "functions": ("--out", "{folder}"),
    "trainer": ("{folder}/best.pt",),
    "module_level": ("{folder}/net.pt",),
    "meters": ("{folder}",),
}
CHECKPOINTS = {
    "functions": "model.pt",
    "trainer": "best.pt",
    "module_level": "net.pt",
    "meters": "checkpoint.pt",
}


# Exits right after a number is reduced: gloo's thread may still hold its tensor.
SHORT = """\
import torch
from torch.utils.data import DataLoader

loader = DataLoader(torch.ones(4, 3), batch_size=4)
model = torch.nn.Linear(3, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    loss = model(x.cuda()).mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
# Pairs of ranks, forked so that PyTorch is imported once. Threads get the GIL only where the script releases it, and
# there is one core: this occasionally happens on a busy machine.
PAIRS = """\
import os, socket, sys
import torch, torch._dynamo

sys.setswitchinterval(100)
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
code = compile(open(sys.argv[1]).read(), sys.argv[1], "exec")
failed = []
for pair in range(8):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(2):
        if not (child := os.fork()):
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
            os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port))
            exec(code, globals())
            sys.exit()  # through Python's own end, as every script
        children.append(child)
    failed += [status for child in children if (status := os.waitpid(child, 0)[1])]
sys.exit(f"ended badly: {failed}" if failed else 0)
"""


def _run(command: tuple[str, ...], folder: Path, chip: bool) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ISTHMUS_")}
    settings = {"OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(chip))}
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={**kept, **settings},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _numbers(output: str) -> list[float]:
    return [float(each) for each in NUMBER.findall(output)]


def _arguments(script: str, folder: Path) -> list[str]:
    return [each.format(folder=folder) for each in ARGUMENTS[script]]


def _converted(script: str, folder: Path) -> Path:
    result = convert_source((SCRIPTS / f"{script}.py").read_text(), f"{script}.py", options=["ddp"])
    assert not left(result)
    path = folder / f"{script}.py"
    path.write_text(result.text)
    return path


def left(result: Result) -> list[Finding]:
    """Findings that the conversion leaves to a person."""
    return [each for each in result.findings if each.severity in LEFT]


@pytest.mark.full
@pytest.mark.sampled(1)
@pytest.mark.parametrize("script", ARGUMENTS)
def test_two_ranks_on_the_cpu(script: str, tmp_path: Path) -> None:
    """The original runs on the host chip, through the shim: bit-equal to the CPU."""
    for name in ("before", "one", "two"):
        (tmp_path / name).mkdir()
    before = _run(
        (*ISTHMUS, str(SCRIPTS / f"{script}.py"), *_arguments(script, tmp_path / "before")), tmp_path, True
    )
    path = _converted(script, tmp_path)
    one = _run((sys.executable, str(path), *_arguments(script, tmp_path / "one")), tmp_path, False)
    two = _run(
        (*TORCHRUN, "--nproc-per-node=2", str(path), *_arguments(script, tmp_path / "two")), tmp_path, False
    )
    assert len(_numbers(before)) >= 4
    assert _numbers(one) == pytest.approx(_numbers(before), rel=1e-6)
    assert _numbers(two) == pytest.approx(_numbers(before), rel=2e-5, abs=1e-6)
    assert re.sub(NUMBER, "", two) == re.sub(NUMBER, "", one)
    _same_checkpoint(tmp_path / "one" / CHECKPOINTS[script], tmp_path / "two" / CHECKPOINTS[script])


@pytest.mark.full
def test_ranks_exit_cleanly_with_outstanding_gloo_work(tmp_path: Path) -> None:
    result = convert_source(SHORT, "short.py", options=["ddp"])
    assert "print_once(mean_over_ranks(loss).item())" in result.text
    script = tmp_path / "short.py"
    script.write_text(result.text)
    _run((sys.executable, "-c", PAIRS, str(script)), tmp_path, False)


@pytest.mark.full
def test_two_ranks_on_the_host_chip_shuffle_as_one_does(tmp_path: Path) -> None:
    path = _converted("functions", tmp_path)
    arguments = ("--shuffle", "--epochs", "1", "--out", str(tmp_path))
    one = _run((*ISTHMUS, str(path), *arguments), tmp_path, True)
    two = _run((*ISTHMUS, "--nproc", "2", str(path), *arguments), tmp_path, True)
    resumed = _run(
        (*ISTHMUS, "--nproc", "2", str(path), *arguments, "--resume", str(tmp_path / "model.pt")),
        tmp_path,
        True,
    )
    assert len(_numbers(one)) >= 4
    assert _numbers(two) == pytest.approx(_numbers(one), rel=2e-5, abs=1e-6)
    assert _numbers(resumed)[-1] < _numbers(two)[-1]


def _same_checkpoint(one: Path, two: Path) -> None:
    expected, found = (torch.load(path, weights_only=True) for path in (one, two))
    expected, found = expected.get("model", expected), found.get("model", found)
    assert not any(name.startswith("module.") for name in found)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
