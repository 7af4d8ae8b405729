"""torchrun restarts the workers after one is killed, and the job continues from its checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.free_port import free_port
from tests.helpers.parallel import elastic
from tools.repository import ROOT

SCRIPT = ROOT / "tests" / "helpers" / "parallel" / "elastic.py"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--monitor-interval=0.1")
ISTHMUS = ("-m", "isthmus", "run", "--nproc", "2", "--log-dir", "{folder}/logs")
BY_HAND = (
    *TORCHRUN[:2],
    "--master-port={port}",
    *TORCHRUN[3:],
)  # torchrun's default, where nodes have numbers
LAUNCHERS = {"torchrun": TORCHRUN, "torchrun_by_hand": BY_HAND, "isthmus_run": ISTHMUS}
KILLED = 3


def run(folder: Path, launcher: tuple[str, ...], killed: int) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    settings = {"ISTHMUS_HOST_DEVICES": "2", "ISTHMUS_HOST_MEMORY": "256MiB", "PYTHONWARNINGS": "ignore"}
    port = free_port()
    command = [word.format(folder=folder, port=port) for word in launcher]
    done = subprocess.run(
        [sys.executable, *command, "--max-restarts=1", str(SCRIPT), str(folder), str(killed)],
        env={**os.environ, "OMP_NUM_THREADS": "1", **settings},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    folder = tmp_path_factory.mktemp("elastic") / "uninterrupted"
    run(folder, TORCHRUN, -1)
    losses = json.loads((folder / "losses-0.json").read_text())["losses"]
    assert len(losses) == elastic.STEPS
    return losses


@pytest.mark.full
@pytest.mark.parametrize("name", LAUNCHERS)
def test_resumed_losses_are_those_of_an_uninterrupted_job(
    tmp_path: Path, uninterrupted: dict[str, float], name: str
) -> None:
    folder = tmp_path / "job"
    done = run(folder, LAUNCHERS[name], KILLED)
    assert "SIGKILL" in done.stderr or "exitcode: -9" in done.stderr, done.stderr[-4000:]
    assert not (folder / "losses-0.json").exists()
    resumed = json.loads((folder / "losses-1.json").read_text())
    assert resumed["losses"] == {step: loss for step, loss in uninterrupted.items() if int(step) >= KILLED}
    # Nothing is left of the memory that the killed worker held, 64 MiB and more, when the next one begins.
    assert max(resumed["before"]) < elastic.BALLAST // 8, resumed["before"]
