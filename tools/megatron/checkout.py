"""``make megatron MEGATRON=path``: the unmodified pretrain_gpt.py of a checkout of Megatron-LM on host devices.

One rank trains and saves a checkpoint half-way. Every parallelism continues from it and must reproduce the rank's
losses. Jobs that start from iteration 0 are compared where Megatron draws the same weights. Megatron's own unit tests
run afterwards, in :mod:`tools.megatron.unit_tests`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from isthmus.launch.iteration_lines import parse_megatron

MODEL = (
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --swiglu "
    "--normalization RMSNorm --position-embedding-type rope --disable-bias-linear --transformer-impl local "
    "--hidden-dropout 0 --attention-dropout 0 "
    "--micro-batch-size 2 --global-batch-size 8 --train-iters 10 --lr 1e-3 --min-lr 1e-3 "
    "--lr-decay-style constant "
    "--mock-data --tokenizer-type NullTokenizer --vocab-size 255 --make-vocab-size-divisible-by 128 "
    "--no-create-attention-mask-in-dataloader --log-interval 1 --eval-iters 0 --eval-interval 1000 "
    "--save-interval 5 "
).split()
TENSOR, PIPELINE, CONTEXT, EXPERT = (
    f"--{kind}-parallel-size 2" for kind in ("tensor-model", "pipeline-model", "context", "expert-model")
)
MOE = "--num-experts 4 --moe-router-load-balancing-type none --moe-token-dispatcher-type alltoall"
ANEW = "--no-load-optim"
FULL = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
ENGINE = "--transformer-impl transformer_engine"
# Ranks and flags: the first saves a checkpoint; the others resume from it.
CONTINUED = {
    "dense": [
        (1, ""),
        (1, FULL),
        (1, "--recompute-granularity selective"),
        (2, TENSOR),
        (2, f"{TENSOR} --sequence-parallel"),
        (2, PIPELINE),
        (2, f"{PIPELINE} --num-layers-per-virtual-pipeline-stage 1"),
        (2, CONTEXT),
        (2, f"{CONTEXT} --cp-comm-type all_gather"),
        (2, f"{CONTEXT} --context-parallel-algo ulysses_cp_algo"),
        (2, f"{TENSOR} --sequence-parallel {FULL} --optimize-recomp-communication-level 2"),
        (1, ENGINE),
        (2, f"{ENGINE} {TENSOR} --sequence-parallel"),
        (2, f"{ENGINE} {PIPELINE}"),
        (2, f"{ENGINE} {CONTEXT}"),
        (4, f"{TENSOR} {PIPELINE}"),
        (4, f"{TENSOR} --sequence-parallel {CONTEXT}"),
    ],
    # Optimizer state cannot be loaded under another expert-parallel size, so its moments start at 0 in both jobs.
    "experts": [(1, MOE), (1, f"{MOE} {ANEW}"), (2, f"{MOE} {EXPERT} {ANEW}")],
}
# Ranks and flags of jobs from iteration 0, compared with the first; looser limits for low-precision dtypes.
FROM_START = [
    (1, "", 1e-5),
    (2, "--use-distributed-optimizer", 1e-5),
    (2, "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather", 1e-5),
    (1, "--bf16", 1e-2),
    (2, "--bf16 --use-distributed-optimizer", 1e-2),
    (1, "--fp16 --initial-loss-scale 65536", 1e-2),
]

RUN = [*(sys.executable, "-W", "ignore", "-m", "isthmus"), "run", "--quiet", "--megatron", "--nproc"]
SETTINGS = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def pretrain(checkout: Path, ranks: int, flags: str) -> dict[int, float]:
    """Run pretrain_gpt.py and return the loss of each iteration.

    Raises:
        RuntimeError: the job failed; the message has the last lines of its output.
    """
    done = subprocess.run(
        [*RUN, str(ranks), str(checkout / "pretrain_gpt.py"), *MODEL, *flags.split()],
        capture_output=True,
        text=True,
        check=False,
        cwd=checkout,
        env={**os.environ, **SETTINGS},
    )
    lines = filter(None, map(parse_megatron, done.stdout.splitlines()))
    losses = {line.iteration: line.loss for line in lines if line.loss is not None}
    if done.returncode or not losses:
        errors = [line for line in done.stderr.splitlines() if re.search(r"Error: |^usage", line)]
        raise RuntimeError(errors[0] if errors else done.stderr[-2000:])
    return losses


def deviation(losses: dict[int, float], expected: dict[int, float]) -> float:
    """Return the largest relative difference of two runs' losses; Megatron prints seven digits.

    The second line of a job is skipped: its loss is the mean of two iterations, because ``training_log`` is not
    reset after the first. A resumed job averages other iterations.
    """
    compared = [each for each in losses if each != min(losses) + 1]
    return max(abs(losses[each] / expected[each] - 1) for each in compared)


class Report:
    """Print a line for each job and count the failures."""

    def __init__(self, checkout: Path) -> None:
        self.checkout, self.failed = checkout, 0

    def job(
        self, ranks: int, flags: str, more: str, expected: dict[int, float], limit: float
    ) -> dict[int, float]:
        name = f"{ranks} rank{'s' if ranks > 1 else ' '} {flags or '-'}"
        try:
            losses = pretrain(self.checkout, ranks, f"{flags} {more}")
        except RuntimeError as error:
            self.failed += 1
            print(f"FAIL  {name}: {error}", flush=True)
            return {}
        off = deviation(losses, expected or losses)
        self.failed += off > limit
        final = losses[max(losses)]
        print(f"{'ok  ' if off <= limit else 'FAIL'}  {final:.6f}  off by {off:.1e}  {name}", flush=True)
        return losses


def main(checkout: Path) -> int:
    report = Report(checkout)
    for kind, jobs in CONTINUED.items():
        print(f"{kind}: one rank saves at iteration 5; the others continue to iteration 10", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            (ranks, flags), *others = jobs
            expected = report.job(ranks, flags, f"--save {folder}", {}, 0.0)
            compared = {ANEW in flags: expected}
            for ranks, flags in others if expected else []:
                is_new = ANEW in flags
                losses = report.job(
                    ranks, flags, f"--load {folder} --ckpt-step 5", compared.get(is_new, {}), 1e-5
                )
                compared.setdefault(is_new, losses)
    print("from iteration 0", flush=True)
    expected = {}
    for ranks, flags, limit in FROM_START:
        losses = report.job(ranks, flags, "", expected, limit)
        expected = expected or losses
    return 1 if report.failed else 0


if __name__ == "__main__":
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "").resolve()
    if not (path / "pretrain_gpt.py").is_file():
        sys.exit("make megatron: set MEGATRON to a checkout of Megatron-LM: make megatron MEGATRON=path")
    sys.exit(main(path))
