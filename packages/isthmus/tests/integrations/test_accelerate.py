"""accelerate and Trainer in two processes: data parallel, FSDP2 and DeepSpeed train to the losses of one process."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.reports import report

pytestmark = pytest.mark.skipif(not find_spec("accelerate"), reason="no accelerate")

SCRIPTS = Path(__file__).parents[1] / "scripts"
RUN = ("-m", "isthmus", "run")
LAUNCH = ("accelerate", "launch", "--num_processes", 2, "--num_machines", 1, "--dynamo_backend", "no")
FLAGS = {
    "MULTI_GPU": "--multi_gpu",
    "FSDP": "--use_fsdp --fsdp_version 2 --fsdp_auto_wrap_policy SIZE_BASED_WRAP --fsdp_min_num_params 100 "
    "--fsdp_state_dict_type SHARDED_STATE_DICT",
    "DEEPSPEED": "--use_deepspeed --deepspeed_config_file zero.json",
}
ZERO: dict[str, Any] = {
    "zero_optimization": {"stage": 3, "reduce_bucket_size": 8192},
    "train_micro_batch_size_per_gpu": "auto",
}
ADAM = {"type": "AdamW", "params": dict.fromkeys(("lr", "betas", "eps", "weight_decay"), "auto")}
AUTO = dict.fromkeys(("gradient_clipping", "gradient_accumulation_steps"), "auto")


def launched(folder: Path, kind: str, precision: str = "no") -> dict[str, Any]:
    if kind == "DEEPSPEED" and not find_spec("deepspeed"):
        pytest.skip("no deepspeed")
    settings = folder / "zero.json"
    settings.write_text(json.dumps({**ZERO, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0}))
    flags = [*FLAGS[kind].replace("zero.json", str(settings)).split(), "--mixed_precision", precision]
    found = report(*RUN, *LAUNCH, *flags, SCRIPTS / "accelerated_ranks.py", folder)
    assert (found["type"], found["device"]) == (f"DistributedType.{kind}", "cuda:0")
    assert found["again"], "after loading the state, the losses are others"
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the result of a single process."""
    found = report(*RUN, SCRIPTS / "accelerated_ranks.py", tmp_path_factory.mktemp("alone"))
    assert (found["type"], len(found["outputs"])) == ("DistributedType.NO", 21)
    return found


def check_same(found: dict[str, Any], alone: dict[str, Any]) -> None:
    for part in ("losses", "norms"):
        assert found[part] == pytest.approx(alone[part], rel=1e-6), part
    assert found["outputs"] == pytest.approx(alone["outputs"], rel=1e-5, abs=1e-5), "gathered for metrics"


@pytest.mark.full
@pytest.mark.parametrize("kind", FLAGS)
def test_accelerate_launch(tmp_path, alone, kind):
    """Each rank has its share of the batches, of parameters under FSDP, and the last batch is not counted twice."""
    found = launched(tmp_path, kind)
    check_same(found, alone)
    assert found["local"] < 0.6 * alone["local"] if kind == "FSDP" else found["local"] == alone["local"]


@pytest.mark.full
def test_bfloat16_under_fsdp(tmp_path, alone):
    found = launched(tmp_path, "FSDP", "bf16")
    assert found["losses"] == pytest.approx(alone["losses"], rel=1e-2)
    assert found["losses"] != pytest.approx(alone["losses"], rel=1e-5)


@pytest.mark.full
def test_accelerate_launch_without_the_shim(tmp_path, alone):
    here = {"ISTHMUS_HOST_DEVICES": "2", "ACCELERATE_TORCH_DEVICE": "chip"}
    launch = ("-m", "accelerate.commands.launch", *LAUNCH[2:])
    found = report(*launch, *FLAGS["FSDP"].split(), SCRIPTS / "accelerated_ranks.py", tmp_path, **here)
    assert (found["type"], found["device"]) == ("DistributedType.FSDP", "chip:0")
    check_same(found, alone)


@pytest.mark.full
@pytest.mark.skipif(not find_spec("deepspeed"), reason="no deepspeed")
def test_trainer(tmp_path):
    settings = tmp_path / "zero.json"
    settings.write_text(json.dumps({**ZERO, **AUTO, "optimizer": ADAM}))
    script = SCRIPTS / "trainer.py"
    expected = report(*RUN, script, tmp_path / "alone")
    for flags in (("--fsdp",), ("--deepspeed", settings)):
        found = report(*RUN, "--nproc", 2, script, tmp_path / flags[0][2:], "--batch", 2, *flags)
        assert found["device"] == "cuda:0"
        for part in ("losses", "evaluations"):
            assert found[part] == pytest.approx(expected[part], rel=1e-6), (flags, part)
