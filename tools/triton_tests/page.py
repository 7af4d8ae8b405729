"""Generate docs/results/triton-tests.md: Triton's own tests of its language, on tensors of the CPU."""

from __future__ import annotations

from tools.ascend.vendor.page import choose_rows, tables
from tools.pytorch_tests.page import named
from tools.suites import Row
from tools.triton_tests.cases import CASES

# Reason -> pattern of a failure, "test: message"; the first match counts. None of them is a fault of the backend.
REASONS = {
    "asks for the text of a GPU compiler's stage": r"KeyError: \W*Unknown key: '(ttgir|llir|ptx|cubin)'",
    "names CUDA itself, not the device under test": r"Torch not compiled with CUDA|compiled without CUDA support",
    "a cooperative grid, whose programs wait for each other": r"ValueError: launch_cooperative_grid",
    "expects that tensors of the CPU are refused": r"test_pointer_arguments\S*: Failed: DID NOT RAISE",
    "expects that the target has no 8-bit floats": r"test_fp8_support\S*: Failed: DID NOT RAISE",
    "compiles for another target, which needs its maker's tools": r"(ptxas|compute capability|sm_\d+|gfx\d+)",
    "expects a line from each thread of a GPU's block": r"test_print\[",
}


def page(rows: list[Row], names: list[str], revision: str) -> str:
    """Return the page as Markdown."""
    rows = [named(row) for row in choose_rows(rows, names)]
    parts = [
        "# Triton's tests of its language",
        f"Made by `make triton-tests`: the tests of triton-lang/triton at {revision}, unmodified, with "
        f"`--device cpu`. {len(rows)} of {len(names)} files have been run. At most {CASES} cases of a function run. "
        "Share: passed, of the tests that are neither skipped nor have one of the named reasons.",
        *tables(rows, REASONS, lambda file: file.rpartition("/")[2]),
    ]
    return "\n\n".join(parts) + "\n"
