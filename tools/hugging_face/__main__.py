"""Run the tests of transformers and accelerate that use an NPU: ``python -m tools.hugging_face MIRRORS``.

MIRRORS holds clones of github.com/huggingface/transformers and huggingface/accelerate, or of forks that have
their commits. Nothing is downloaded: tests that need a file of the Hugging Face Hub fail or are skipped. Results are
appended to a file as they arrive, so that an interrupted run can be resumed; docs/results/ascend-hugging-face.md is
generated from it. Failures do not change the exit status.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools import mirrors
from tools.ascend.vendor import runner
from tools.hugging_face.page import page

ROOT = runner.ROOT
PAGE = ROOT / "docs/results/ascend-hugging-face.md"
SOURCES = ROOT / "build/hugging-face"
# The last commit before transformers 5.14, which requires older packages than constraints.txt has; one of that month.
REVISIONS = {"transformers": "279da5ce1b", "accelerate": "16cb6eb8"}
# Installed for the tests only, the sources of both, and the vendor's wheel.
PACKAGES = (
    ROOT / "build/hugging-face-packages",
    *(SOURCES / name / "src" for name in REVISIONS),
    ROOT / "build/torch_npu",
)
ENDINGS = (".py", ".json", ".txt", ".yaml", ".csv", ".sh", ".model")
MODELS = "bert gpt2 llama mixtral qwen3 t5 vit deepseek_v3".split()
# Those files of accelerate whose tests ask for an accelerator.
ACCELERATE = (
    "accelerator big_modeling cli compile grad_sync hooks kwargs_handlers "
    "load_checkpoint_and_dispatch_with_broadcast memory_utils metrics modeling_utils multidevice optimizer "
    "state_checkpointing utils"
).split()
PARTS = (
    *(f"transformers/tests/models/{name}/test_modeling_{name}.py" for name in MODELS),
    *(f"accelerate/tests/test_{name}.py" for name in ACCELERATE),
)
SUITE = runner.Suite(
    sources=SOURCES,
    folder=lambda file: SOURCES / file.partition("/")[0],
    packages=lambda file: PACKAGES,
    results=ROOT / "build/hugging-face.jsonl",
    settings={"HF_HUB_OFFLINE": "1"},
)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.hugging_face", description=__doc__)
    add = parser.add_argument
    add("mirrors", type=Path, nargs="?", help="folder of clones: huggingface/transformers and accelerate")
    add("parts", nargs="*", default=PARTS, help=f"files or folders, such as {PARTS[0]}")
    runner.add_options(parser, test_seconds=300, file_seconds=3600)
    return parser.parse_args()


def _main(asked: argparse.Namespace) -> None:
    if asked.mirrors is None and not asked.report:
        raise FileNotFoundError("set MIRRORS to a folder of clones: make ascend-hugging-face MIRRORS=path")
    for name, revision in () if asked.report else REVISIONS.items():
        place = mirrors.holding(asked.mirrors, f"huggingface/{name}", revision)
        mirrors.extract_once(place, revision, SOURCES / name, ENDINGS, "src", "tests", "utils")
    rows = runner.run(SUITE, asked)
    PAGE.write_text(page(rows, list(SUITE.files(PARTS)), REVISIONS))
    print(f"written: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    try:
        _main(_options())
    except FileNotFoundError as error:
        sys.exit(f"ascend-hugging-face: {error}")
