"""Generate docs/results/triton-libraries.md."""

from __future__ import annotations

from collections.abc import Mapping

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


def page(found: Mapping[Library, list[Row]], files: Mapping[str, int]) -> str:
    """Return the page as Markdown; ``files`` is the number of files of each library's tests."""
    rows = [
        {**named(row), "file": f"{library.name}/{row['file']}"}
        for library, of in found.items()
        for row in sorted(of, key=lambda row: row["file"])
    ]
    revisions = ", ".join(f"{each.repository} at {each.revision}" for each in found)
    samples = ", ".join(f"one in {each.every} of {each.name}'s" for each in found)
    run = ", ".join(f"{len(of)} of {files[each.name]} files of {each.name}" for each, of in found.items())
    parts = [
        "# Libraries of Triton kernels",
        "Made by `make triton-libraries MIRRORS=path`: the libraries' own tests, unmodified, under `isthmus run` on "
        f"the host chip, whose kernels isthmus-triton compiles: {revisions}. Of the tests of each function, the "
        f"first and {samples} are run; so far {run}. Share: passed, of the tests that are neither skipped nor have "
        "one of the named reasons.",
        *tables(rows, REASONS, lambda file: file.partition("/")[0]),
    ]
    return "\n\n".join(parts) + "\n"
