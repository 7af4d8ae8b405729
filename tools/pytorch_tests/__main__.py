"""Run PyTorch's own tests for any device on the host chip: ``python -m tools.pytorch_tests MIRRORS``.

MIRRORS holds a clone of github.com/Ascend/pytorch, whose copies of PyTorch's tests name another device than CUDA; the
chip's name replaces that. Results are appended to a file as they arrive, so that an interrupted run can be resumed;
docs/results/pytorch-tests.md is generated from it. Failures do not change the exit status.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from tools import mirrors
from tools.ascend.vendor import runner
from tools.pytorch_tests.page import page
from tools.repository import ROOT

PAGE = ROOT / "docs/results/pytorch-tests.md"
SOURCES = ROOT / "build/pytorch-tests"
REVISION = "94c0533b"  # the last one for PyTorch 2.13
FOLDERS = ("test", "torch_npu/testing")
FILES = tuple(
    f"test/{name}.py"
    for name in (
        "test_view_ops test_indexing test_sort_and_select test_shape_ops test_type_promotion "
        "test_tensor_creation_ops npu/test_dlpack npu/test_serialization test_nestedtensor test_sparse_csr "
        "test_native_mha nn/test_embedding nn/test_pooling nn/test_convolution nn/test_dropout "
        "nn/test_multihead_attention test_optim test_reductions test_torch test_transformers test_binary_ufuncs "
        "test_unary_ufuncs test_autograd test_nn test_modules test_sparse"
    ).split()
)
MAKE_TENSOR = (
    r"\1\nfrom torch.testing import make_tensor\n"  # which test_convolution.py uses and does not import
)
# In order: text of the copies, and what PyTorch's test has for the chip.
NAMES = (
    (r"^from torch_npu\.testing\.(testcase|decorator|common_\w+) import", r"from \1 import"),
    (r"^(import torch_npu.*|from torch_npu[\w.]* import .*)$", "pass"),
    (r"torch_npu\.npu", "torch.chip"),
    (r"torch\.npu\b", "torch.chip"),
    (r"(?<![A-Za-z])npu(?![A-Za-z])", "chip"),
    (r"\bNPUGraph\b", "Graph"),
    (r"\bAutogradNPU\b", "AutogradPrivateUse1"),
    (r"PYTORCH_NPU_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
    (r"(?<=[\"'])NPU(?=[\"'])", "PrivateUse1"),
    (r"\bskipIfMps\b", "skipIfMPS"),  # names of earlier versions of PyTorch
    (r"\bbinary_ufuncs_and_refs\b", "binary_ufuncs"),
    (r"\bdtypes_t\b", "dtypes"),
    (r"\bNPU storage\b", "chip storage"),
    (r"\bself\.has_cudnn\(\)", "False"),
    (
        r"^(from torch\S+ import _test_module_empty_input, NNTestCase)\n(?!from torch.testing import)",
        MAKE_TENSOR,
    ),
    (r"^if __name__ == .__main__.:\n    (instantiate_parametrized_tests\(\w+\))\n    run_tests\(\)", r"\1"),
    # Skips of what the vendor's chip or runtime lacks and this one has.
    (r"^@unittest\.skip\(.Does not support now.\)\n(?=class Test(Transformers|SDPA)\()", ""),
    (r"^ *@unittest\.skip\(.NPU currently do not support nested tensor\..\)\n", ""),
    (r"raise SkipTest\(.NPU implementation is not yet supporting uint8.\)", "pass"),
    (r"^ *@SupportedDevices\(.*\)\n", ""),
    (r"\b1024 \* 1024 \* 64\b", "1024 * 1024"),  # hundreds of passes over as many take a core an hour
)
SUITE = runner.Suite(
    sources=SOURCES,
    folder=lambda file: (SOURCES / file).parent,
    packages=lambda file: [ROOT / "build/test-packages", SOURCES / "test", SOURCES / "torch_npu/testing"],
    results=ROOT / "build/pytorch-tests.jsonl",
    settings={
        "ISTHMUS_HOST_DEVICES": "2",
        "ISTHMUS_HOST_MEMORY": "6GiB",
        "PYTORCH_TESTING_DEVICE_ONLY_FOR": "privateuse1",
    },
    command=(sys.executable, "-m", "pytest", "-p", "tools.pytorch_tests.device_tests"),
)


def renamed(source: str) -> str:
    """Return a copy's source with the chip's name, as PyTorch's tests have CUDA's."""
    for pattern, name in NAMES:
        source = re.sub(pattern, name, source, flags=re.MULTILINE)
    return source


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.pytorch_tests", description=__doc__)
    add = parser.add_argument
    add("mirrors", type=Path, nargs="?", help="folder of clones: Ascend/pytorch")
    add("parts", nargs="*", default=FILES, help="files, such as test/test_torch.py (default: all)")
    runner.add_options(parser, test_seconds=120, file_seconds=1800)
    return parser.parse_intermixed_args()


def _write_tests(places: Path) -> None:
    """Write the renamed tests below build/; renaming them again changes nothing, so a test may run meanwhile."""
    mirrors.extract_once(mirrors.repository(places, "Ascend/pytorch"), REVISION, SOURCES, (".py",), *FOLDERS)
    for path in SOURCES.rglob("*.py"):
        source = path.read_text()
        if (tests := renamed(source)) != source:
            path.write_text(tests)


def _main(asked: argparse.Namespace) -> None:
    if asked.mirrors is None and not asked.report:
        raise FileNotFoundError("set MIRRORS to a folder of clones: make pytorch-tests MIRRORS=path")
    if not asked.report:
        _write_tests(asked.mirrors)
    rows = runner.run(SUITE, asked)
    PAGE.write_text(page(rows, list(FILES), REVISION))
    print(f"written: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    try:
        _main(_options())
    except FileNotFoundError as error:
        sys.exit(f"pytorch-tests: {error}")
