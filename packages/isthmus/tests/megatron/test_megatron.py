"""A tiny GPT of megatron-core: every parallelism trains to the losses of one rank, and of plain PyTorch."""

import itertools
import json
import subprocess
import sys

import pytest

from tests.helpers.children import start_module
from tests.helpers.free_port import free_port
from tools.repository import ROOT

STEPS = "--train-iters 5 --lr 1e-2 "
TENSOR, PIPELINE, CONTEXT, EXPERTS = (
    f"--{kind}-parallel-size 2" for kind in ("tensor-model", "pipeline-model", "context", "expert-model")
)
OLDER = "--normalization LayerNorm --untie-embeddings-and-output-weights "
LEVELS = ((1, 1), (1, 2), (2, 1), (2, 2))  # layers in a checkpoint, level
# Command lines whose losses are equal; the first of each set is what the others are compared with.
SETS = (
    (
        "--plain",
        "",
        TENSOR,
        f"{TENSOR} --sequence-parallel",
        PIPELINE,
        CONTEXT,
        f"{CONTEXT} --cp-comm-type all_gather",
        f"{CONTEXT} --cp-comm-type a2a",
        "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
        "--recompute-granularity selective",
    ),
    (f"{OLDER} --plain", f"{OLDER} {TENSOR} --sequence-parallel", f"{OLDER} {PIPELINE}"),
    (
        "--num-experts 4",
        f"--num-experts 4 {EXPERTS}",
        f"--num-experts 4 {EXPERTS} --moe-token-dispatcher-type allgather",
    ),
)
FULL = f"{TENSOR} --recompute-granularity full --recompute-method uniform"
UNFUSED = "--no-rope-fusion --no-gradient-accumulation-fusion"
PARTLY = "--rotary-percent 0.5"
SEQUENCE = f"{TENSOR} --sequence-parallel --recompute-granularity full --recompute-method uniform"
DROPOUT = "--hidden-dropout 0.1 --attention-dropout 0.1"
LEVEL = "--optimize-recomp-communication-level"
RECOMPUTED = (
    f"{FULL} --recompute-num-layers 1",
    *(f"{FULL} --recompute-num-layers {i} {LEVEL} {j}" for i, j in LEVELS),
)
SCATTERED = (
    f"{SEQUENCE} --recompute-num-layers 1",
    *(f"{SEQUENCE} --recompute-num-layers {i} {LEVEL} {j}" for i, j in LEVELS),
)
SETS += (
    RECOMPUTED,
    (f"{FULL} --recompute-num-layers 1 {DROPOUT}", f"{FULL} --recompute-num-layers 1 {DROPOUT} {LEVEL} 2"),
    SCATTERED,
    (
        f"{SEQUENCE} --recompute-num-layers 1 {DROPOUT}",
        f"{SEQUENCE} --recompute-num-layers 2 {DROPOUT} {LEVEL} 1",
    ),
    (UNFUSED, ""),
    (f"{PARTLY} {UNFUSED}", f"{PARTLY} {TENSOR} --sequence-parallel", f"{PARTLY} {CONTEXT}"),
)
PAIRS = [(first, other) for first, *others in SETS for other in others]


def train(*flags: str, ranks: int = 2) -> dict[str, dict]:
    """Report of the last rank for each command line; all run in one job, because the imports take seconds."""
    size, port = str(ranks), str(free_port())
    job = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    processes = [
        start_module(
            "tests.helpers.megatron_jobs",
            *flags,
            **job,
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            ISTHMUS_HOST_DEVICES=size,
        )
        for rank in range(ranks)
    ]
    try:
        printed = [process.communicate(timeout=900) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert all(process.returncode == 0 for process in processes), "\n".join(error for _, error in printed)
    reports = [json.loads(line) for line in printed[-1][0].splitlines() if line.startswith("{")]
    return {report["flags"]: report for report in reports}


@pytest.fixture(scope="module")
def reports(request):
    """Reports of the command lines that the tests of this run compare or count."""
    asked = set()
    for item in request.session.items:
        function = getattr(item, "function", None)
        if function is test_losses_are_those_of:
            asked |= {item.callspec.params["first"], item.callspec.params["other"]}
        asked |= set(COUNTED.get(getattr(function, "__name__", ""), ()))
    return train(*(STEPS + each for each in itertools.chain(*SETS) if each in asked))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("first", "other"), PAIRS, ids=[other for _, other in PAIRS])
def test_losses_are_those_of(reports, first, other):
    expected, found = (reports[STEPS + flags]["losses"] for flags in (first, other))
    assert expected[0] > expected[-1] + 0.05, "nothing was learnt"
    if LEVEL in other:
        assert found == expected and reports[STEPS + other]["norms"] == reports[STEPS + first]["norms"]
    else:
        assert found == pytest.approx(expected, rel=1e-5)


# The command lines whose collectives a test counts.
COUNTED = {
    "test_recompute_repeats_fewer_collectives": (TENSOR, *RECOMPUTED),
    "test_gradients_are_gathered_while_a_layer_is_recomputed": (f"{TENSOR} --sequence-parallel", *SCATTERED),
}
PASSES = 5 * 4 * 2  # iterations, micro-batches, layers


@pytest.mark.full
def test_recompute_repeats_fewer_collectives(reports):
    """Of the two all-reduces of each layer: both, that of attention, none."""
    without = reports[STEPS + TENSOR]["collectives"]["all_reduce"]
    repeated = {
        each: reports[f"{STEPS}{FULL} --recompute-num-layers {each}"]["collectives"]["all_reduce"] - without
        for each in ("1", *(f"{i} {LEVEL} {j}" for i, j in LEVELS))
    }
    assert repeated == {
        "1": 2 * PASSES,
        f"1 {LEVEL} 1": PASSES,
        f"1 {LEVEL} 2": 0,
        f"2 {LEVEL} 1": PASSES + PASSES // 2,  # that of the first layer is needed by the second
        f"2 {LEVEL} 2": 0,
    }


@pytest.mark.full
def test_gradients_are_gathered_while_a_layer_is_recomputed(reports):
    """Of the reduce-scatters of each layer those that end a checkpoint: the recompute has begun before the wait."""
    without = reports[f"{STEPS}{TENSOR} --sequence-parallel"]["collectives"]
    found = {}
    for each in ("1", *(f"{i} {LEVEL} {j}" for i, j in LEVELS)):
        collectives = reports[f"{STEPS}{SEQUENCE} --recompute-num-layers {each}"]["collectives"]
        repeated = collectives["reduce_scatter_tensor"] - without["reduce_scatter_tensor"]
        found[each] = (repeated, collectives["overlapped"])
    assert found == {
        "1": (2 * PASSES, 0),
        f"1 {LEVEL} 1": (PASSES, PASSES),
        f"1 {LEVEL} 2": (0, 2 * PASSES),
        f"2 {LEVEL} 1": (PASSES + PASSES // 2, PASSES // 2),
        f"2 {LEVEL} 2": (0, 2 * PASSES),
    }


@pytest.mark.full
def test_a_batch_that_does_not_divide_is_refused():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "isthmus", "run", "--quiet"]
        + ["examples/pretrain_gpt_core.py", "--global-batch-size", "7"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "pretrain_gpt_core.py: --global-batch-size 7 must be a multiple of --micro-batch-size 2 times "
        "1 data-parallel ranks"
    )
