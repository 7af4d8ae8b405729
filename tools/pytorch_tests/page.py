"""Generate docs/results/pytorch-tests.md: PyTorch's own tests for any device, on the host chip."""

from __future__ import annotations

from tools.ascend.vendor.page import choose_rows, tables
from tools.suites import Row

# Reason -> pattern of a test's message; the first match counts. None of them is a fault of the chip.
REASONS: dict[str, str] = {}


def page(rows: list[Row], names: list[str], revision: str) -> str:
    """Return the page as Markdown."""
    rows = choose_rows(rows, names)
    parts = [
        "# PyTorch's tests for any device",
        "Made by `make pytorch-tests`: PyTorch's tests that take a device, in the copies of Ascend/pytorch at "
        f"{revision} with the chip's name, on two devices of the host chip with 16 GiB each. {len(rows)} of "
        f"{len(names)} files have been run. Share: passed, of the tests that are neither skipped nor have one of the "
        "named reasons.",
        *tables(rows, REASONS, lambda file: file),
    ]
    return "\n\n".join(parts) + "\n"
