"""Hugging Face Trainer and accelerate on the chip: under `isthmus run`, and by their own variable without it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.helpers.children import output
from tests.helpers.reports import report, run_forked

pytestmark = pytest.mark.skipif(not find_spec("accelerate"), reason="no accelerate")

SCRIPTS = Path(__file__).parents[1] / "scripts"
RUN = ("-m", "isthmus", "run")
RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
VARIABLE = {"ACCELERATE_TORCH_DEVICE": "chip"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("precision", ["no", "bf16", "fp16"])
@pytest.mark.full
def test_accelerate_with_and_without_the_shim(tmp_path, precision):
    """Accumulated gradients, clipping, save_state and load_state; the numbers of both ways are the same."""
    arguments = (SCRIPTS / "accelerated.py", tmp_path, "--precision", precision)
    found = report(*arguments, **VARIABLE)
    assert found["device"] == "chip"
    assert found["scaler"] == (precision == "fp16")
    assert found["again"] == found["second"] != found["first"]
    shimmed = report(*RUN, *arguments)
    assert shimmed["device"] == "cuda"
    assert [shimmed[part] for part in ("first", "second")] == [found[part] for part in ("first", "second")]
    if precision == "no":
        on_cpu = report(*arguments, ACCELERATE_USE_CPU="true")
        assert on_cpu["device"] == "cpu"
        assert on_cpu["again"] == found["again"], "float32 on the chip is bit-equal to the CPU"


def test_trainer(tmp_path):
    found = run_forked(SCRIPTS / "trainer.py", tmp_path, "--bf16")
    assert found["device"] == "cuda:0" and found["losses"][-1] < found["losses"][0]
    assert len(found["evaluations"]) == 2


@pytest.mark.full
@pytest.mark.parametrize("precision", ["--bf16", "--fp16"])
def test_trainer_with_and_without_the_shim(tmp_path, precision):
    """Gradient checkpointing and accumulation, evaluation, checkpoints; the numbers of both ways are the same."""
    found = report(SCRIPTS / "trainer.py", tmp_path / "plain", precision, **VARIABLE)
    shimmed = report(*RUN, SCRIPTS / "trainer.py", tmp_path / "shim", precision)
    assert (found["device"], shimmed["device"]) == ("chip:0", "cuda:0")
    assert found["losses"][-1] < found["losses"][0]
    assert len(found["evaluations"]) == 2
    assert (found["losses"], found["evaluations"]) == (shimmed["losses"], shimmed["evaluations"])


@pytest.mark.full
def test_trainer_resumes(tmp_path):
    script = SCRIPTS / "trainer.py"
    whole = report(script, tmp_path / "whole", "--steps", 4, **VARIABLE)
    report(script, tmp_path / "parts", "--steps", 2, **VARIABLE)
    resumed = report(script, tmp_path / "parts", "--steps", 4, "--resume", **VARIABLE)
    assert resumed["losses"] == whole["losses"]
    assert resumed["evaluations"] == whole["evaluations"]


@pytest.mark.full
def test_two_processes(tmp_path):
    script = SCRIPTS / "accelerated.py"
    plain = report(*RANKS, script, tmp_path / "plain", ISTHMUS_HOST_DEVICES="2", **VARIABLE)
    shimmed = report(*RUN, "--nproc", 2, script, tmp_path / "shim")
    assert (plain["device"], plain["processes"], shimmed["processes"]) == ("chip:0", 2, 2)
    assert len(plain["first"]) == 4, "each process has half of the batches"
    assert plain["first"] == shimmed["first"]
    assert plain["again"] == plain["second"] == shimmed["second"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("first", ["torch", "accelerate"])
def test_libraries_are_patched_in_any_import_order(first):
    code = f"""
        import {first}
        import accelerate, torch
        from accelerate import Accelerator
        from isthmus_common import patches
        from transformers.utils import is_torch_bf16_gpu_available
        scaler = Accelerator(mixed_precision="fp16").scaler
        print(scaler._device, is_torch_bf16_gpu_available())
        from isthmus.shim import hugging_face
        hugging_face.uninstall()
        print(len(patches.active("hugging_face")))
    """
    assert output(code, ACCELERATE_TORCH_DEVICE="chip").split() == ["chip", "True", "0"]


def test_nothing_is_patched_without_the_variable():
    code = """
        import sys, torch
        found = [name for name in sys.modules if name.startswith("isthmus_migrate.")]
        print([name for name in found if name != "isthmus_migrate.options"])  # read if another package's is set
    """
    assert output(code, ACCELERATE_TORCH_DEVICE=None) == "[]"
