"""Generate docs/results/triton-libraries.md."""

from __future__ import annotations

from collections.abc import Mapping

from tools.ascend.vendor.page import tables
from tools.suites import Row
from tools.triton_libraries.libraries import Library

# Reason -> pattern of a failure's message; the first match counts. None of them is a wrong result of the compiler.
REASONS: dict[str, str] = {}


def page(found: Mapping[Library, list[Row]]) -> str:
    """Return the page as Markdown."""
    rows = [
        {**row, "file": f"{library.name}/{row['file']}"}
        for library, of in found.items()
        for row in sorted(of, key=lambda row: row["file"])
    ]
    revisions = ", ".join(f"{each.repository} at {each.revision}" for each in found)
    samples = ", ".join(f"one in {each.every} of {each.name}'s" for each in found)
    parts = [
        "# Libraries of Triton kernels",
        f"Made by `make triton-libraries MIRRORS=path`: the libraries' own tests, unmodified, under `isthmus run` on "
        f"the host chip, whose kernels isthmus-triton compiles: {revisions}. Of the tests of each function, the "
        f"first and {samples} are run. Share: passed, of the tests that are neither skipped nor have one of the "
        "named reasons.",
        *tables(rows, REASONS, lambda file: file.partition("/")[0]),
    ]
    return "\n\n".join(parts) + "\n"
