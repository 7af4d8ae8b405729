"""Generate the page of results of a library."""

from __future__ import annotations

from tools.ascend.vendor.page import tables
from tools.pytorch_tests.page import named
from tools.suites import Row
from tools.triton_libraries.libraries import Library

# Reason -> pattern of a failure, "test: message"; the first match counts. None is a wrong result of the compiler.
REASONS = {
    "an operator that PyTorch has for CUDA alone": r"it has kernels only for other accelerators|"
    r"Could not run 'aten::\w+' with arguments from the 'CPU' backend",
    "dtypes that PyTorch refuses on any device": r"addmv input tensors must have the same dtype",
    "what else CUDA's kernel of embedding_bag returns": r"embedding_bag\S*: IndexError: index out of range in self",
    "a comparison of memory that nobody wrote": r"test_empty\w*(\[\S*)?: AssertionError: Tensor-likes",
    "memory of more than a GiB, or minutes of a core, for each test": r"^(crashed|timed out|not run)$",
    "rounding of 16 bits: a unit in the last place passes the test's limit": r"flash_attention_backward\S*: Asser",
}


def page(library: Library, rows: list[Row], files: int) -> str:
    """Return the page of a library as Markdown; ``files`` is the number of its files of tests."""
    rows = [named(row) for row in sorted(rows, key=lambda row: row["file"])]
    parts = [
        f"# Tests of {library.name}",
        f"Made by `make triton-libraries MIRRORS=path`: the tests of {library.repository} at {library.revision}, "
        "unmodified, under `isthmus run` on the host chip, whose kernels isthmus-triton compiles. Of the tests of "
        f"each function, one in {abs(library.every)} is run, the {'first' if library.every > 0 else 'last'} among "
        f"them; so far {len(rows)} of {files} files. Share: "
        "passed, of the tests that are neither skipped nor have one of the named reasons.",
        *tables(rows, REASONS, lambda file: file.rpartition("/")[0]),
    ]
    return "\n\n".join(parts) + "\n"
