"""DeepSpeed by its accelerator interface: every stage of ZeRO trains to the losses of plain PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.children import output, run
from tests.helpers.reports import report, run_forked

if not find_spec("deepspeed"):  # not imported here: it has an effect on the process
    pytest.skip("no deepspeed", allow_module_level=True)

SCRIPT = Path(__file__).parents[1] / "scripts" / "deepspeed_training.py"
ISTHMUS_RUN = ("-m", "isthmus", "run", "--nproc", "2")
LAUNCHER = ("-m", "isthmus", "run", "deepspeed", "--num_gpus", "2")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
FLOAT32 = ("0", "1", "2", "3", "2 torch")
HALF = ("1 bf16", "2 fp16", "3 bf16", "3 fp16")
# The configuration that a test compares its own with.
COMPARED = {
    "test_half_follows_float32": "1",
    "test_deepspeeds_own_launcher": "3",
    "test_without_the_shim": "2",
}


@pytest.fixture(scope="module")
def reports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Reports of the configurations that the tests of this run ask for."""
    asked = set()
    for item in request.session.items:
        asked.add(COMPARED.get(getattr(item, "originalname", "")))
        asked.add(item.callspec.params.get("configuration") if hasattr(item, "callspec") else None)
    configurations = [each for each in (*FLOAT32, *HALF) if each in asked]
    return run_forked(SCRIPT, tmp_path_factory.mktemp("deepspeed"), "plain", *configurations, ranks=2)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("configuration", FLOAT32)
def test_float32_is_plain_pytorch(reports, configuration):
    plain, found = reports["plain"], reports[configuration]
    assert plain["losses"][0] > plain["losses"][-1] + 1, "nothing was learnt"
    assert found["losses"] == pytest.approx(plain["losses"], rel=1e-6)
    assert found["optimizer"] == ("AdamW" if "torch" in configuration else "FusedAdam")
    if configuration != "0":  # DeepSpeed keeps no norm without ZeRO
        assert found["norms"] == pytest.approx(plain["norms"], rel=1e-6)
        assert max(found["norms"]) > 0.5, "nothing was clipped"


@pytest.mark.full
@pytest.mark.sampled(1)
@pytest.mark.parametrize("configuration", HALF)
def test_half_follows_float32(reports, configuration):
    """A rounding of bfloat16 is 2^-9 relative, and moves a loss near 4 by about 0.004."""
    found = reports[configuration]["losses"]
    assert found == pytest.approx(reports["plain"]["losses"], rel=2e-3)
    assert found != reports["1"]["losses"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("configuration", (*FLOAT32, *HALF))
def test_checkpoint_continues_bit_for_bit(reports, configuration):
    assert reports[configuration]["again"] == reports[configuration]["losses"]


@pytest.mark.full
def test_deepspeeds_own_launcher(reports, tmp_path):
    found = report(*LAUNCHER, SCRIPT, tmp_path, "3")["3"]
    assert found["losses"] == reports["3"]["losses"]
    assert found["device"] == "cuda:0"


@pytest.mark.full
def test_without_the_shim(reports, tmp_path):
    found = report(*TORCHRUN, SCRIPT, tmp_path, "2", DS_ACCELERATOR="chip")["2"]
    assert found["losses"] == reports["2"]["losses"]
    assert found["device"] == "chip:0"


@pytest.mark.slow  # DeepSpeed compiles its CPU optimizer: a minute the first time
def test_optimizer_on_the_host(reports, tmp_path):
    """DeepSpeed's CPU kernel multiplies up the powers of beta in float32: 3e-5 of ``1 - beta ** 2``."""
    found = report(*ISTHMUS_RUN, SCRIPT, tmp_path, "3 offload")["3 offload"]
    assert found["optimizer"] == "DeepSpeedCPUAdam"
    assert found["losses"] == pytest.approx(reports["plain"]["losses"], rel=1e-5)


@pytest.mark.host("the size of its memory")
def test_deepspeed_gets_the_chips_capabilities():
    code = """
        import isthmus.deepspeed
        import deepspeed, torch
        from deepspeed.accelerator import get_accelerator
        here = get_accelerator()
        here.set_device(1)
        x = here.HalfTensor([1, 2])
        print(here.current_device_name(), x.device, x.dtype, here.on_accelerator(x), here.on_accelerator(x.cpu()))
        before = here.memory_allocated()
        y = torch.empty(1 << 20, dtype=torch.uint8, device=here.device(1))
        print(here.memory_allocated() - before, here.max_memory_cached() >= 1 << 20, here.total_memory() >> 20)
        here.manual_seed(7)
        state, first = here.get_rng_state(), torch.rand(4, device=x.device)
        here.set_rng_state(state)
        print(here.initial_seed(), torch.equal(first, torch.rand(4, device=x.device)))
        start, end = here.Event(enable_timing=True), here.Event(enable_timing=True)
        with here.stream(here.Stream()):
            start.record(); y.fill_(1); end.record()
        end.synchronize()
        print(start.elapsed_time(end) >= 0, here.is_pinned(here.pin_memory(torch.ones(4))))
        graph = here.create_graph()
        with here.capture_to_graph(graph):
            z = x + 1
        x.zero_()
        here.replay_graph(graph)
        print(z.tolist())
    """
    lines = output(code, ISTHMUS_HOST_DEVICES="2", ISTHMUS_HOST_MEMORY="64MiB").splitlines()
    assert lines == [
        "chip:1 chip:1 torch.float16 True False",
        f"{1 << 20} True 64",
        "7 True",
        "True True",
        "[1.0, 1.0]",
    ]


def test_fused_adam_is_the_formula():
    code = """
        import isthmus.deepspeed
        import torch
        from deepspeed.ops.adam import FusedAdam
        for decoupled in (True, False):
            values = [torch.randn(5, 3), torch.randn(7)]
            ours, theirs = ([each.clone().to("chip").requires_grad_() for each in values] for _ in range(2))
            kind = torch.optim.AdamW if decoupled else torch.optim.Adam
            fused = FusedAdam(ours, lr=0.1, weight_decay=0.1, adam_w_mode=decoupled)
            plain = kind(theirs, lr=0.1, weight_decay=0.1)
            for _ in range(3):
                for a, b in zip(ours, theirs):
                    a.grad = torch.randn_like(a)
                    b.grad = a.grad.clone()
                fused.step(), plain.step()
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
        x, grad = torch.zeros(3, device="chip", requires_grad=True), torch.tensor([1.0, -2.0, 4.0], device="chip")
        x.grad = grad
        FusedAdam([x], lr=0.5, bias_correction=False, betas=(0.9, 0.99), eps=0).step()
        torch.testing.assert_close(x.detach(), -0.5 * 0.1 * grad.sign() / 0.01 ** 0.5)
    """
    output(code)


def test_operators_for_gpus_are_refused_in_one_line():
    code = """
        import isthmus.deepspeed
        import deepspeed
        from deepspeed.ops.op_builder import FusedLambBuilder
        FusedLambBuilder().load()
    """
    error = run(code).stderr.splitlines()[-1]
    assert error.startswith(
        "NotImplementedError: DeepSpeed's FusedLamb is for GPUs only and cannot run on chip"
    )


def test_devices_of_the_launcher():
    code = """
        import isthmus.deepspeed
        from deepspeed.accelerator import get_accelerator
        found = {}
        get_accelerator().set_visible_devices_envs(found, [0, 1])
        print(found["LOCAL_WORLD_SIZE"])
        get_accelerator().set_visible_devices_envs(found, [1])
    """
    done = run(code, LOCAL_WORLD_SIZE=None)
    assert done.stdout.strip() == "2"
    assert "ValueError: devices [1] of chip: 1 ranks use devices 0 to 0" in done.stderr


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("asked", "name"), [(None, "chip"), ("cuda", "chip"), ("chip", "chip"), ("cpu", "cpu")]
)
def test_the_variable_is_obeyed(asked, name):
    code = """
        import isthmus.deepspeed
        from deepspeed.accelerator import get_accelerator
        print(get_accelerator()._name)
        isthmus.deepspeed.undo()
        import os
        os.environ["DS_ACCELERATOR"] = "cpu"
        print(get_accelerator()._name)
    """
    assert output(code, DS_ACCELERATOR=asked).splitlines() == [name, "cpu"]


def test_a_late_import_is_reported():
    code = """
        from deepspeed.accelerator import get_accelerator
        get_accelerator()
        import isthmus.deepspeed
    """
    error = run(code, DS_ACCELERATOR="cuda").stderr.splitlines()[-1]
    assert error.startswith(
        "RuntimeError: DeepSpeed has already selected the accelerator 'cuda'; import isthmus.deepspeed"
    )
