"""``isthmus plan parallel``: formulas computed by hand, layouts that cannot run, flags, errors, a real job."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isthmus_diagnostics.plan.cli import app
from isthmus_diagnostics.plan.files import PlanError
from isthmus_diagnostics.plan.parallel import cluster as clusters
from isthmus_diagnostics.plan.parallel import emit, memory, model, report, speed
from isthmus_diagnostics.plan.parallel.cluster import Cluster, Link
from isthmus_diagnostics.plan.parallel.layouts import Layout, layouts, problem
from isthmus_diagnostics.plan.parallel.model import Model
from tests.helpers import children
from tools.repository import ROOT

DENSE = Model(4, 512, 8, 4, 64, 1408, 4096, seq=128, dtype="float32")
EXPERTS = Model(4, 512, 8, 4, 64, 704, 4096, experts=4, topk=2, seq=128, dtype="float32")
CLUSTER = Cluster(8, 1 << 34, {"float32": 1e12, "bfloat16": 4e12}, 1e11, [Link(0, 1e-5, 1e10)])
TOML = """
cards = 8
memory = "16GiB"
bandwidth = 1e11
[flops]
bfloat16 = 1e12
[[links]]
ranks = 4
latency = 1e-5
bandwidth = 1e11
[[links]]
latency = 1e-4
bandwidth = 1e10
"""
LLAMA = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 1408,
    "vocab_size": 4096,
}


def layout(**sizes: int | str) -> Layout:
    defaults = {"tp": 1, "pp": 1, "vpp": 1, "cp": 1, "ep": 1, "dp": 1, "micro_batch": 2, "global_batch": 16}
    return Layout(**{**defaults, "recompute": "none", **sizes})  # type: ignore[arg-type]


def written(folder: Path, config: dict[str, object] = LLAMA, cluster: str = TOML) -> list[str]:
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "cluster.toml").write_text(cluster)
    return ["parallel", str(folder / "config.json"), "--cluster", str(folder / "cluster.toml")]


def printed(*words: str) -> str:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return done.output


def test_states_of_one_card():
    attention = 512 * (512 + 2 * 256) + 512 * 512
    parameters = 4 * (attention + 3 * 512 * 1408 + 2 * 512) + 512 + 2 * 4096 * 512
    assert DENSE.parameters == parameters
    assert memory.states(DENSE, layout(), 0) == {
        "weights": 4 * parameters,
        "gradients": 4 * parameters,
        "optimizer states": 8 * parameters,
    }


def test_states_are_sharded():
    sharded = memory.states(DENSE, layout(dp=2, cp=2), 0)
    assert sharded["optimizer states"] == 2 * DENSE.parameters
    half = memory.parameters(DENSE, layout(tp=2), 0)["dense"]
    assert half == (DENSE.parameters - 9 * 512) / 2 + 9 * 512
    stages = [memory.parameters(DENSE, layout(pp=2), stage)["dense"] for stage in (0, 1)]
    assert sum(stages) == DENSE.parameters and stages[1] - stages[0] == 512
    experts = memory.parameters(EXPERTS, layout(ep=2, dp=2), 0)["experts"]
    assert experts == 4 * 2 * 3 * 512 * 704
    assert memory.states(EXPERTS, layout(ep=2, dp=2), 0)["optimizer states"] == 4 * EXPERTS.parameters


def test_mixed_precision_adds_master_weights():
    from dataclasses import replace

    mixed = memory.states(replace(DENSE, dtype="bfloat16"), layout(), 0)
    assert sum(mixed.values()) == 18 * DENSE.parameters


def test_activations_of_a_layer():
    rows = 4 * 2 * 128  # bytes of one feature
    features = 4 * 512 + (512 + 256) + (512 + 2 * 256) + 2 * 512 + 3 * 1408
    small = 2 * 4 * 256 + 4 * 256 * 8 + 4 * 4 * 128 * 64
    assert sum(memory.saved_bytes(DENSE, layout()).values()) == rows * features + small


@pytest.mark.parametrize(
    ("sizes", "stage", "expected"),
    [
        ({"pp": 4}, 0, 4),
        ({"pp": 4}, 3, 1),
        ({"pp": 4, "micro_batch": 8}, 0, 2),
        ({"pp": 4, "vpp": 2}, 0, 11),
        ({"pp": 4, "vpp": 2}, 3, 5),
    ],
)
def test_micro_batches_in_flight(sizes: dict[str, int], stage: int, expected: int):
    assert memory.in_flight(layout(**sizes), stage) == expected


def test_recompute_keeps_the_inputs_of_layers():
    found = memory.of_stage(DENSE, layout(recompute="full"), 0)
    assert found.terms["activations"] == 4 * 4 * 2 * 128 * 512
    assert found.total < memory.of_stage(DENSE, layout(), 0).total


def test_time_of_one_card():
    terms = speed.step(DENSE, layout(global_batch=2), CLUSTER)
    tokens = 256
    products = 6 * tokens * (DENSE.parameters - 4096 * 512 - 9 * 512)
    attention = 4 * 3.5 * 2 * tokens * 128 * 512
    assert terms["matrix products"] == pytest.approx((products + attention) / 1e12)
    assert not {"TP", "PP", "CP", "EP", "DP", "pipeline bubble", "host"} & terms.keys()


def test_bubble_of_a_pipeline():
    few, many = (speed.step(DENSE, layout(pp=4, global_batch=n), CLUSTER) for n in (8, 32))
    assert few["pipeline bubble"] == many["pipeline bubble"]
    halved = speed.step(DENSE, layout(pp=2, vpp=2), CLUSTER)["pipeline bubble"]
    assert halved < 0.6 * speed.step(DENSE, layout(pp=2), CLUSTER)["pipeline bubble"]


def test_cards_that_share_processors():
    from dataclasses import replace

    shared = replace(CLUSTER, cores=2.0)
    assert "shared processors" not in speed.step(DENSE, layout(dp=2), shared)
    two, eight = (sum(speed.step(DENSE, layout(dp=n), shared).values()) for n in (2, 8))
    assert eight > 0.9 * two


def test_the_host_delays_layers_and_their_parallelism():
    from dataclasses import replace

    known = {"dense1": 1e-3, "experts1": 2e-3, "expert1": 5e-4, "TP2": 1e-3, "TP4": 3e-3, "EP2": 4e-3}
    slow = replace(CLUSTER, overhead=known)
    assert [slow.delay("TP", ranks) for ranks in (2, 3, 4, 8)] == [1e-3, 3e-3, 3e-3, 3e-3]
    assert slow.delay("CP", 2) == 0
    dense, tensor, full = (
        speed.step(DENSE, layout(global_batch=n, tp=tp, recompute=recompute), slow)["host"]
        for n, tp, recompute in ((2, 1, "none"), (2, 2, "none"), (2, 1, "full"))
    )
    assert (dense, tensor, full) == pytest.approx((4e-3, 8e-3, 1.4 * 4e-3))
    experts = speed.step(EXPERTS, layout(global_batch=4, ep=2, dp=2), slow)["host"]
    assert experts == pytest.approx(4 * (2e-3 + 2 * 5e-4 + 4e-3))


def test_the_overhead_of_a_layer_contains_latencies():
    from dataclasses import replace

    known = replace(CLUSTER, overhead={"TP2": 1e-3})
    sent = [speed.step(DENSE, layout(tp=2), each)["TP"] for each in (CLUSTER, known)]
    assert sent[0] - sent[1] == pytest.approx(8 * 4 * 10 * 1e-5)


def test_collectives():
    near, far = Link(4, 1e-5, 1e11), Link(0, 1e-4, 1e10)
    cluster = Cluster(8, 1, {}, 1.0, [near, far])
    assert cluster.seconds("all_reduce", 1e9, 4, 4) == pytest.approx(1e-5 + 1.5e9 / 1e11)
    assert cluster.seconds("all_gather", 1e9, 2, 8) == pytest.approx(1e-4 + 0.5e9 / 1e10)
    assert cluster.seconds("all_gather", 1e9, 1, 8) == 0


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"tp": 8}, "4 key and value heads are not a multiple of TP 8"),
        ({"tp": 16}, "8 heads are not a multiple of TP 16"),
        ({"pp": 3}, "4 layers are not a multiple of PP 3 x VPP 1"),
        ({"cp": 3}, "128 tokens are not a multiple of 2 x CP 3"),
        ({"ep": 3, "dp": 3}, "4 experts are not a multiple of EP 3"),
        ({"dp": 3}, "global batch 16 is not a multiple of micro-batch x DP 6"),
        ({"pp": 2, "vpp": 2, "micro_batch": 16}, "1 micro-batches are not a multiple of PP 2, as VPP needs"),
    ],
)
def test_layouts_that_cannot_run(sizes: dict[str, int], reason: str):
    assert problem(EXPERTS, layout(**sizes)) == reason


def test_every_layout_uses_all_cards():
    found = list(layouts(EXPERTS, 8, 16))
    assert {each.cards for each in found} == {8}
    assert len(set(found)) == len(found)
    assert any(each.ep == 4 for each in found) and any(each.vpp == 2 for each in found)


def test_memory_decides_what_fits():
    least = min(each.memory.total for each in report.rank(DENSE, CLUSTER, 16).fits)
    from dataclasses import replace

    ranking = report.rank(DENSE, replace(CLUSTER, memory=int(least)), 16)
    assert len(ranking.fits) == 0 or ranking.fits[0].memory.total <= least
    assert any(reason.startswith("needs") for _, reason in ranking.infeasible)


def test_thousands_of_layouts_take_seconds():
    large = Model(80, 8192, 64, 8, 128, 28672, 128256)
    start = time.process_time()
    ranking = report.rank(
        large, CLUSTER.__class__(1024, 80 << 30, {"bfloat16": 4e14}, 2e12, CLUSTER.links), 1024
    )
    assert len(ranking.fits) + len(ranking.infeasible) > 2000
    assert time.process_time() - start < 5


def test_the_command_needs_no_torch():
    code = (
        "import sys; from isthmus_diagnostics.plan.parallel import session; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_command(tmp_path: Path):
    words = written(tmp_path)
    table = printed(
        *words, "--global-batch", "16", "--seq-length", "128", "--json", str(tmp_path / "all.json")
    )
    assert table.splitlines()[0].split()[:3] == ["rank", "TP", "PP"]
    found = json.loads((tmp_path / "all.json").read_text())
    seconds = [each["seconds"] for each in found["layouts"]]
    assert seconds == sorted(seconds) and found["model"]["parameters"] == DENSE.parameters
    assert found["infeasible"][0]["reason"]
    explained = printed(*words, "--global-batch", "16", "--seq-length", "128", "--explain", "2")
    for term in ("weights", "gradients", "optimizer states", "SwiGLU", "matrix products", "total"):
        assert term in explained
    assert "are not a multiple of" in printed(*words, "--infeasible")


def test_megatron_options_describe_the_model(tmp_path: Path):
    path = tmp_path / "pretrain.sh"
    path.write_text(
        "torchrun pretrain_gpt.py --num-layers 4 --hidden-size=512 \\\n --num-attention-heads 8 "
        "--group-query-attention --num-query-groups 4 --ffn-hidden-size 704 --vocab-size 4096 "
        "--seq-length 128 --num-experts 4 "
        "--untie-embeddings-and-output-weights"
    )
    assert model.read(path, None, "") == EXPERTS


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        ({"model_type": "gpt2"}, [], "model_type 'gpt2' is not supported"),
        ({"hidden_size": None}, [], "config.json:"),
        ({}, ["--memory", "lots"], "is not a size"),
        ({}, ["--memory", "1MiB"], "no layout fits"),
        ({}, ["--dtype", "int8"], "--dtype int8: expected"),
        ({}, ["--dtype", "float32"], "the cluster has no flops.float32"),
        ({}, ["--emit", "fairscale"], "--emit fairscale: expected"),
        ({}, ["--explain", "100000"], "layouts fit"),
        ({}, ["--global-batch", "0"], "--global-batch 0: give 1 or more"),
        ({}, ["--cluster", "missing.toml"], "missing.toml: No such file or directory"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, change: dict[str, object], words: list[str], message: str):
    done = CliRunner().invoke(app, [*written(tmp_path, LLAMA | change), *words])
    assert done.exit_code == 1
    assert message in done.output and len(done.output.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cards = 8", "flops is missing"),
        (TOML.replace("1e12", "0"), "flops.bfloat16 is 0; it must be above 0"),
        ("speed = 1\n" + TOML, "unknown entry 'speed'"),
        (TOML.partition("[[links]]")[0], "8 cards and 0 links"),
        (TOML + 'operation = "gossip"', "unknown operation 'gossip'"),
        ("cards = ", "not a cluster"),
    ],
)
def test_clusters_that_are_refused(tmp_path: Path, text: str, message: str):
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    with pytest.raises(PlanError, match=message.replace("[", r"\[")):
        clusters.read(path)


def test_a_cluster_is_read_as_it_was_written(tmp_path: Path):
    path = tmp_path / "cluster.toml"
    found = Cluster(
        4,
        1 << 33,
        {"float32": 7e10},
        2e10,
        [Link(2, 1e-5, 5e9, "send"), Link(2, 2e-5, 4e9)],
        {"dense1": 4e-3},
        2.0,
    )
    clusters.write(path, found)
    assert clusters.read(path) == found
    assert path.stat().st_mode & 0o777 == 0o640


MANY = (
    layout(),
    layout(tp=2, pp=2, cp=2, micro_batch=1),
    layout(pp=2, vpp=2, dp=2, recompute="full"),
    layout(ep=2, dp=4, micro_batch=1),
)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("chosen", MANY)
def test_megatron_flags_are_those_of_the_example(chosen: Layout):
    shape = EXPERTS if chosen.ep > 1 else DENSE
    code = f"""
        import json, sys
        sys.path.insert(0, {str(ROOT / "examples")!r})
        from gpt_core.flags import parse_args
        print(json.dumps(vars(parse_args({emit.emit("megatron", shape, chosen).split()!r})), default=str))
    """
    args = argparse.Namespace(**json.loads(children.output(code).splitlines()[-1]))
    assert args.tensor_model_parallel_size == chosen.tp and args.sequence_parallel == (chosen.tp > 1)
    assert args.pipeline_model_parallel_size == chosen.pp
    assert (args.virtual_pipeline_model_parallel_size or 1) == chosen.vpp
    assert args.context_parallel_size == chosen.cp and args.expert_model_parallel_size == chosen.ep
    assert (args.micro_batch_size, args.global_batch_size) == (chosen.micro_batch, 16)
    assert (args.recompute_granularity or "none") == chosen.recompute and args.use_distributed_optimizer


def test_torchtitan_flags():
    flags = dict(each.split() for each in f" {emit.emit('torchtitan', DENSE, MANY[2])}".split(" --")[1:])
    assert flags["parallelism.pipeline_parallel_schedule"] == "Interleaved1F1B"
    assert int(flags["parallelism.pipeline_parallel_layers_per_stage"]) == 1
    assert int(flags["training.local_batch_size"]) == 8 and flags["activation_checkpoint.mode"] == "full"


def test_deepspeed_configuration():
    config = json.loads(emit.emit("deepspeed", DENSE, layout(tp=2, dp=2)))
    assert config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * 2 == 16
    with pytest.raises(PlanError, match="no interleaved pipeline"):
        emit.emit("deepspeed", DENSE, MANY[2])


@pytest.mark.full
def test_deepspeed_reads_its_configuration():
    """DeepSpeed 0.19 counts the ranks of tensor parallelism in train_batch_size, and compares the product."""
    if not find_spec("deepspeed"):
        pytest.skip("no deepspeed")
    code = f"""
        import isthmus.deepspeed
        from deepspeed.runtime.config import DeepSpeedConfig
        found = DeepSpeedConfig({json.loads(emit.emit("deepspeed", DENSE, layout(tp=2, dp=2)))!r})
        print(found.train_micro_batch_size_per_gpu, found.gradient_accumulation_steps, found.train_batch_size)
        print(found.zero_config.stage, found.tensor_parallel_config.autotp_size)
    """
    assert children.output(code).splitlines() == ["2 4 8", "1 2"]


@pytest.mark.full
def test_a_real_job_needs_the_predicted_memory(tmp_path: Path):
    """Two pipeline stages of two parts: every rank's peak is within 5 % of the prediction."""
    options = (
        "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --num-query-groups 4 --seq-length 128 "
        "--vocab-size 4096 --untie-embeddings-and-output-weights --ffn-hidden-size 1408 "
    )
    chosen = layout(pp=2, global_batch=8)
    done = subprocess.run(
        [
            sys.executable,
            "benchmarks/plan_parallel.py",
            "--train",
            "2 " + options + emit.emit("megatron", DENSE, chosen),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        env={**os.environ, "ISTHMUS_HOST_DEVICES": "2", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr
    peaks = json.loads(done.stdout)["peaks"]
    for stage, found in enumerate(peaks):
        assert memory.of_stage(DENSE, chosen, stage).total == pytest.approx(found, rel=0.05)
