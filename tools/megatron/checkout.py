"""``make megatron MEGATRON=path``: the unmodified pretrain_gpt.py of a checkout of Megatron-LM on host devices.

One rank trains and saves a checkpoint half-way. Every parallelism continues from it and must reproduce the rank's
losses. Jobs that start from iteration 0 are compared where Megatron draws the same weights. Megatron's own unit tests
run afterwards, in :mod:`tools.megatron.unit_tests`.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from isthmus_common.training.iteration_lines import parse_megatron

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
GRAPHS = "--cuda-graph-impl local"
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
    (1, GRAPHS, 0.0),
    (2, "--use-distributed-optimizer", 1e-5),
    (2, "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather", 1e-5),
    (1, "--bf16", 1e-2),
    (2, "--bf16 --use-distributed-optimizer", 1e-2),
    (1, "--fp16 --initial-loss-scale 65536", 1e-2),
]

RUN = [*(sys.executable, "-W", "ignore", "-m", "isthmus"), "run", "--quiet", "--megatron"]
SETTINGS = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


@dataclass
class Training:
    """Command of pretrain_gpt.py: a checkout, a command that takes the number of ranks, options, variables."""

    checkout: Path
    command: Sequence[str] = (*RUN, "--nproc")
    options: Sequence[str] = tuple(MODEL)
    settings: Mapping[str, str] = field(default_factory=lambda: SETTINGS)

    def losses(self, ranks: int, flags: str) -> dict[int, float]:
        """Run pretrain_gpt.py and return the loss of each iteration.

        Raises:
            RuntimeError: the job failed; the message has the last lines of its output.
        """
        script = str(self.checkout / "pretrain_gpt.py")
        done = subprocess.run(
            [*self.command, str(ranks), script, *self.options, *flags.split()],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.checkout,
            env={**os.environ, **self.settings},
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


class Job(NamedTuple):
    """A finished job: its ranks and flags, the last loss, and the largest difference; or the error."""

    ranks: int
    flags: str
    loss: float = math.nan
    off: float = math.nan
    limit: float = 0.0
    error: str = ""

    @property
    def has_failed(self) -> bool:
        return bool(self.error) or self.off > self.limit


class Report:
    """Run jobs, print a line for each, and keep them."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self.jobs: list[Job] = []

    def job(
        self, ranks: int, flags: str, more: str, expected: dict[int, float], limit: float
    ) -> dict[int, float]:
        name = f"{ranks} rank{'s' if ranks > 1 else ' '} {flags or '-'}"
        try:
            losses = self.training.losses(ranks, f"{flags} {more}")
        except RuntimeError as error:
            self.jobs.append(Job(ranks, flags, error=str(error)))
            print(f"FAIL  {name}: {error}", flush=True)
            return {}
        job = Job(ranks, flags, losses[max(losses)], deviation(losses, expected or losses), limit)
        self.jobs.append(job)
        verdict = "FAIL" if job.has_failed else "ok  "
        print(f"{verdict}  {job.loss:.6f}  off by {job.off:.1e}  {name}", flush=True)
        return losses

    def continued(self, kind: str, jobs: Sequence[tuple[int, str]]) -> None:
        """Run jobs of which the first saves a checkpoint half-way, from which the others continue."""
        print(f"{kind}: one rank saves at iteration 5; the others continue to iteration 10", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            (ranks, flags), *others = jobs
            expected = self.job(ranks, flags, f"--save {folder}", {}, 0.0)
            compared = {ANEW in flags: expected}
            for ranks, flags in others if expected else []:
                is_new, more = ANEW in flags, f"--load {folder} --ckpt-step 5"
                losses = self.job(ranks, flags, more, compared.get(is_new, {}), 1e-5)
                compared.setdefault(is_new, losses)

    def from_start(self, jobs: Sequence[tuple[int, str, float]]) -> None:
        """Run jobs from iteration 0, and compare them with the first; each has its limit."""
        print("from iteration 0", flush=True)
        expected: dict[int, float] = {}
        for ranks, flags, limit in jobs:
            losses = self.job(ranks, flags, "", expected, limit)
            expected = expected or losses


def main(checkout: Path) -> int:
    report = Report(Training(checkout))
    for kind, jobs in CONTINUED.items():
        report.continued(kind, jobs)
    report.from_start(FROM_START)
    return int(any(job.has_failed for job in report.jobs))


if __name__ == "__main__":
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "").resolve()
    if not (path / "pretrain_gpt.py").is_file():
        sys.exit("make megatron: set MEGATRON to a checkout of Megatron-LM: make megatron MEGATRON=path")
    sys.exit(main(path))
