"""Test serving: ``python -m tools.vllm VERSION``, in the environment of ``make vllm``.

Runs the tests of isthmus-vllm in full, then vLLM's own tests, unmodified, on the chip, without a fallback. Results of
vLLM's tests are appended to a file as they arrive, so that an interrupted run can be resumed; docs/results/serving.md
is generated from both. Failures of vLLM's tests do not change the exit status.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from tools.ascend.vendor import runner
from tools.repository import ROOT
from tools.vllm import hub
from tools.vllm.environment import folder, prepare_tests, source
from tools.vllm.page import page

PAGE = ROOT / "docs/results/serving.md"
TESTS = ROOT / "packages/isthmus-vllm/tests"
# vLLM's own tests; each must pass at least as often as the number.
FILES = {
    "sample/test_sampler.py": 36,
    "sample/test_rejection_sampler.py": 75,
    "sample/test_topk_topp_sampler.py": 0,
    "logits_processors/test_correctness.py": 43,
    "worker/test_gpu_input_batch.py": 14,
    "worker/test_gpu_model_runner.py": 49,
    "cudagraph/test_breakable_cudagraph.py": 20,
    "cudagraph/test_cudagraph_dispatch.py": 12,
    "attention/test_attention_backends.py": 84,
    "test_outputs.py": 11,
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.vllm", description=__doc__)
    parser.add_argument("version", help="version of vLLM")
    parser.add_argument("parts", nargs="*", default=list(FILES), help="files of vLLM's tests, below tests/v1")
    runner.add_options(parser, test_seconds=300, file_seconds=3600)
    return parser.parse_intermixed_args()


def _own(report: Path) -> bool:
    """Run the tests of the plugin into a report; return whether all passed."""
    models = ROOT / "build/vllm/models"
    command = [sys.executable, "-m", "pytest", "--full", f"--junit-xml={report}", str(TESTS)]
    environment = {**os.environ, "VLLM_TEST_MODELS": str(models), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == 0


def _suite(version: str) -> runner.Suite:
    home = folder(version)
    tests = source(version) / "tests"
    return runner.Suite(
        sources=tests / "v1",
        folder=lambda file: tests.parent,
        packages=lambda file: [tests.parent],
        results=ROOT / f"build/vllm-tests-{version}.jsonl",
        settings={
            "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(hub.make(home / "hub")), "VLLM_NO_USAGE_STATS": "1",
            "ISTHMUS_STRICT": "1", "VLLM_CACHE_ROOT": str(home / "cache"), "VLLM_CONFIG_ROOT": str(home / "config"),
        },
        # Their fixtures lie above the folder, and some name torch.cuda themselves.
        command=(sys.executable, "-m", "isthmus", "run", "-m", "pytest", "--confcutdir", str(tests)),
    )  # fmt: skip


def main() -> int:
    """Run what is asked for and write the page."""
    asked = _options()
    prepare_tests(asked.version)
    report = ROOT / f"build/vllm-own-{asked.version}.xml"
    passed = report.exists() if asked.report else _own(report)
    rows = runner.run(_suite(asked.version), asked)
    cases = ET.parse(report).getroot().iter("testcase") if report.exists() else []
    PAGE.write_text(page(asked.version, list(cases), rows, FILES))
    print(f"written: {PAGE.relative_to(ROOT)}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
