"""``isthmus plan recompute``: plans of jobs that do not fit without one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isthmus.launch.run import Job, JobError
from isthmus_diagnostics.plan.cli import app
from isthmus_diagnostics.plan.files import Plan, PlanError, Stage, read, write
from tools.repository import ROOT

SCRIPT = "packages/isthmus/tests/scripts/plan_training.py"
STEPS = 3


def isthmus(*words: object, memory: str = "2GiB") -> subprocess.CompletedProcess[str]:
    settings = {"ISTHMUS_HOST_DEVICES": "2", "ISTHMUS_HOST_MEMORY": memory, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "isthmus", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        cwd=ROOT,
        env={**os.environ, **settings, "PYTHONWARNINGS": "ignore"},
    )


def losses(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("0x")]


def planned(path: Path, memory: str, *program: object) -> str:
    done = isthmus("plan", "recompute", "--memory", memory, "-o", path, *program)
    assert done.returncode == 0, done.stderr
    return done.stdout


def trains_within(path: Path, memory: str, *program: object) -> None:
    """A job that fails within the memory trains there with the plan, with the losses of one that has plenty."""
    assert "out of memory" in isthmus("run", *program, memory=memory).stderr
    capped = isthmus("run", "--plan", path, *program, memory=memory)
    assert losses(capped) == losses(isthmus("run", *program))
    assert len(losses(capped)) == STEPS


@pytest.mark.full
def test_a_job_that_does_not_fit_trains_with_a_plan(tmp_path: Path):
    path = tmp_path / "plan.json"
    report = planned(path, "52MiB", SCRIPT, 20)
    rows = {line.split()[0]: line.split() for line in report.splitlines() if "measured" in line}
    assert float(rows["all"][3]) <= float(rows["selective"][3]) <= 52 / 1024
    plan = json.loads(path.read_text())
    actions = plan["stages"][0]["actions"]
    assert 0 < len(actions) <= 6
    assert actions != {f"0/layers.{index}": {".": "recompute"} for index in range(6)}
    trains_within(path, "54MiB", SCRIPT, STEPS)


@pytest.mark.full
def test_a_hugging_face_model_trains_with_a_plan(tmp_path: Path):
    path = tmp_path / "plan.json"
    planned(path, "52MiB", SCRIPT, 20, "hugging-face")
    trains_within(path, "54MiB", SCRIPT, STEPS, "hugging-face")


LLAMA = "examples/pretrain_llama.py --num-layers 4 --hidden-size 128 --iterations 20".split()


@pytest.mark.full
def test_the_llama_example_trains_with_a_plan(tmp_path: Path):
    path = tmp_path / "plan.json"
    planned(path, "104MiB", *LLAMA, "--overwrite", "--output", tmp_path / "planned")

    def run(name: str, *plan: object, memory: str = "2GiB") -> subprocess.CompletedProcess[str]:
        output = tmp_path / name
        return isthmus("run", *plan, *LLAMA, "--exit-iteration", STEPS, "--output", output, memory=memory)

    assert "out of memory" in run("a", memory="108MiB").stderr
    assert run("b", "--plan", path, memory="108MiB").returncode == 0
    assert run("c").returncode == 0
    found = [(tmp_path / name / "metrics.jsonl").read_text() for name in "bc"]
    values = [re.findall(r'"loss": [^,]*', text) for text in found]
    assert values[0] == values[1]


@pytest.mark.full
def test_activations_and_states_on_the_host(tmp_path: Path):
    """A job 1.5 times its device completes by --swap; a plan with offload gives the same losses, too."""
    path = tmp_path / "plan.json"
    actions = {f"0/layers.{index}": {".": "offload"} for index in range(5)}
    write(path, Plan(1 << 30, [Stage([0], actions, optimizer=True)]))
    plain = isthmus("run", SCRIPT, STEPS)
    swapped = isthmus("run", "--swap", SCRIPT, STEPS, memory="49MiB")
    offloaded = isthmus("run", "--plan", path, SCRIPT, STEPS)
    assert losses(plain) == losses(swapped) == losses(offloaded)
    peak, _, least = (int(each.stdout.split()[-1]) for each in (plain, swapped, offloaded))
    assert peak > 1.5 * (49 << 20)
    assert least < 0.75 * peak


@pytest.mark.full
def test_swap_goes_on_when_an_allocation_fails():
    """Samples get longer after the peak was measured, so that the job is 1.5 times its device."""
    plain = isthmus("run", SCRIPT, 6, "longer")
    swapped = isthmus("run", "--swap", SCRIPT, 6, "longer", memory="150MiB")
    assert losses(plain) == losses(swapped)
    assert int(plain.stdout.split()[-1]) > 1.5 * (150 << 20)


GPT = (
    "examples/pretrain_gpt_core.py --pipeline-model-parallel-size 2 --num-layers 8 --hidden-size 128 "
    "--ffn-hidden-size 512 --seq-length 128 --hidden-dropout 0.1 --attention-dropout 0.1"
).split()


@pytest.mark.full
def test_each_pipeline_stage_of_megatron_has_its_plan(tmp_path: Path):
    path = tmp_path / "plan.json"
    report = planned(path, "40MiB", "--nproc", 2, *GPT)
    assert re.findall(r"(\d) micro-batches in flight", report) == ["2", "1"]
    first, last = (stage["actions"] for stage in json.loads(path.read_text())["stages"])
    assert len(first) > len(last)

    def run(*plan: object) -> list[str]:
        done = isthmus("run", "--nproc", 2, *plan, *GPT, "--train-iters", STEPS)
        assert done.returncode == 0, done.stderr
        return re.findall(r"lm loss: \S+", done.stdout)

    assert len(run()) == STEPS
    assert run("--plan", path) == run()


def test_mistakes_are_one_line(tmp_path: Path):
    plan = tmp_path / "plan.json"
    write(plan, Plan(1, [Stage([0], {"0/x.0": {".": "skip"}})]))
    for words, status, message in (
        (("--memory", "6GB", SCRIPT, "9"), 2, "--memory 6GB: not a size"),
        (("no.py", "--memory", "6GiB"), 1, "cannot run no.py: no such file"),
    ):
        done = CliRunner().invoke(app, ["recompute", *words])
        assert done.exit_code == status
        assert done.stderr.startswith(f"isthmus: {message}")
    with pytest.raises(JobError, match=r"--plan none\.json: no such file"):
        Job([SCRIPT], {"plan": "none.json"}).environment()
    with pytest.raises(PlanError, match="unknown action 'skip'; expected recompute"):
        read(plan)
    with pytest.raises(PlanError, match="not for rank 2; plan again"):
        Plan(1, [Stage([0], {}), Stage([1], {})]).stage(2)
