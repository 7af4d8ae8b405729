"""Train with MindSpeed and run its own unit tests: ``python -m tools.mindspeed MIRRORS``.

MIRRORS holds clones of github.com/Ascend/MindSpeed, of which HEAD is taken, and NVIDIA/Megatron-LM. Results are
appended to files as they arrive, so that an interrupted run can be resumed; docs/results/mindspeed.md is generated
from them. Failures do not change the exit status.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from tools.ascend.vendor import runner
from tools.megatron.checkout import (
    ENGINE,
    FROM_START,
    FULL,
    MODEL,
    PIPELINE,
    SETTINGS,
    TENSOR,
    Job,
    Report,
    Training,
)
from tools.mindspeed.checkout import MEGATRON, PACKAGES, ROOT, Versions, checked_out
from tools.mindspeed.page import page

PAGE = ROOT / "docs/results/mindspeed.md"
JOBS = ROOT / "build/mindspeed-training.json"
PARTS = ("tests_extend/unit_tests",)
RUN = [*(sys.executable, "-W", "ignore", "-m", "isthmus"), "ascend", "run", "--nproc"]
# Mock data has token 4095. Fused accumulation of gradients is compiled with the ATB library, which is not here; the
# fused softmax of torch_npu needs a mask, which MODEL leaves to the attention.
MORE = "--vocab-size 8191 --no-gradient-accumulation-fusion --no-masked-softmax-fusion --no-load-rng"
OPTIONS = (*MODEL, *MORE.split())
# MindSpeed compiles extensions with headers that are under CANN's licence, which forbids it for other processors.
NO_COMPILER = {"CXX": "false", "TORCH_EXTENSIONS_DIR": str(ROOT / "build/mindspeed-extensions")}
FLASH = f"{ENGINE} --use-flash-attn"
# Ranks and flags: the first saves a checkpoint; the others continue from it.
CONTINUED = [
    (1, ""),
    (1, FULL),
    (2, TENSOR),
    (2, f"{TENSOR} --sequence-parallel"),
    (2, PIPELINE),
    (2, f"{PIPELINE} --num-layers-per-virtual-pipeline-stage 1"),
    (2, "--context-parallel-size 2 --context-parallel-algo ulysses_cp_algo"),
    (1, FLASH),
    (2, f"{FLASH} {TENSOR} --sequence-parallel"),
    (4, f"{TENSOR} {PIPELINE}"),
]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mindspeed", description=__doc__)
    add = parser.add_argument
    add("mirrors", type=Path, nargs="?", help="folder of clones: Ascend/MindSpeed and NVIDIA/Megatron-LM")
    add("parts", nargs="*", default=PARTS, help=f"files or folders of tests (default: {PARTS[0]})")
    add("--devices", type=int, default=2, help="number of NPUs (default: %(default)s)")
    runner.add_options(parser, test_seconds=300, file_seconds=1200)
    return parser.parse_args()


def _variables() -> dict[str, str]:
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    paths = os.pathsep.join([*map(str, [*PACKAGES, ROOT]), *given])
    return {**SETTINGS, "PYTHONPATH": paths, "CUDA_DEVICE_MAX_CONNECTIONS": "1"}


def _trained(asked: argparse.Namespace) -> list[Job]:
    """Return the results of the jobs; run them if there are none."""
    if asked.anew:
        JOBS.unlink(missing_ok=True)
    if not JOBS.exists() and not asked.report:
        report = Report(Training(MEGATRON, RUN, OPTIONS, _variables()))
        report.continued("MindSpeed", CONTINUED)
        report.from_start(FROM_START)
        JOBS.write_text(json.dumps(report.jobs))
    return [Job(*job) for job in json.loads(JOBS.read_text())] if JOBS.exists() else []


def _process(file: str) -> str:
    """Name the process of a test file.

    Files of a folder that import MindSpeed's adaptor share one, as in its CI, which saves imports. Of the others some
    replace modules of Megatron.
    """
    imports_adaptor = "megatron_adapt" in (MEGATRON / file).read_text()
    return "/".join(file.split("/")[:3]) if imports_adaptor else file


def _main(asked: argparse.Namespace) -> None:
    if asked.mirrors is None:
        raise FileNotFoundError("set MIRRORS to a folder of clones: make mindspeed MIRRORS=path")
    versions: Versions = checked_out(asked.mirrors)
    suite = runner.Suite(
        sources=MEGATRON,
        folder=lambda file: MEGATRON,
        packages=lambda file: PACKAGES,
        results=ROOT / "build/mindspeed-tests.jsonl",
        devices=lambda file: asked.devices,
        group=_process,
        settings=NO_COMPILER,
    )
    jobs = _trained(asked)
    rows = runner.run(suite, asked)
    PAGE.write_text(page(jobs, rows, list(suite.files(PARTS)), versions, asked.devices))
    print(f"written: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    try:
        _main(_options())
    except FileNotFoundError as error:
        sys.exit(f"mindspeed: {error}")
