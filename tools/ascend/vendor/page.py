"""Generate docs/results/ascend-tests.md: results of the vendor's own tests over the reference runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tools.suites import UNDECIDED, Row, counts, file_cell, head, line, outcome_cells, reason, reasons

# Missing requirement -> pattern of a test's message; the first match counts. None of them is a fault of the runtime.
MISSING = {
    "more devices than two": r"(?i)multi.?npu|need at least \d|world.?size|device count",
    "a package that is not installed": r"ModuleNotFoundError|No module named|not installed|"
    r"OSError: \[Errno None\]|derive from BaseException, not OSError",  # error of NNAL's libatb
    "an NPU of another kind": r"(?i)\bsoc\b|soc.?version|910_?93|910_?95|\bA5\b|Ascend950|is not supported on|"
    r"not support.*device",
    "a function that is not implemented": r"GetWorkspaceSize not in|Failed to find function",
    "operators compiled on the machine (acl_op)": r"aclop|acl_op|AclOp|EZ\d{4}|\bGE\b|Graph ?Engine|"
    r"current working operator name is (?!aclnn|Identity)",
    "PyTorch's own test files": r"torch.testing._internal.*cannot|cannot import name .* from 'torch.testing",
    "the vendor's sources, of which only the tests are here": r"No such file.*/torch_npu/csrc/|acl/libs/build_stub",
    "disabled in the vendor's list of tests": r"this test is disabled now",
    "other words of PyTorch 2.13": r"all tensors to be on the same device.*does not match|path is a soft chain|"
    r"module 'torch._C' has no attribute",
    "an older NumPy": r"module 'numpy' has no attribute",
    "formats that torch_npu casts over CANN 9.1 and later": r"expectValue: \d+,  resultValue: NCHW",
    "a fault of the test": r"fixture '\w+' not found|NameError: name|has no attribute 'assert|"
    r"has no attribute 'runTest|expected call not found",
    "inductor, Triton or torchair": r"(?i)triton|inductor|torchair|npugraph_ex",
}


def _folder(file: str) -> str:
    return "/".join(file.split("/")[:3])


def _totals(rows: list[Row], missing: Mapping[str, str], folder: Callable[[str], str]) -> Iterator[str]:
    yield from head("", "tests", "passed", "failed", "skipped", "cut off", "not collected", "share")
    for name in [*dict.fromkeys(folder(row["file"]) for row in rows), ""]:
        part = [row for row in rows if name in ("", folder(row["file"]))]
        found, share = counts(part), _share(part, missing)
        yield line(name or "all", found.total() - found["not collected"], *outcome_cells(found), share)


def _share(rows: list[Row], missing: Mapping[str, str]) -> str:
    """Return the share of the tests that lack nothing and are not skipped which pass."""
    outcomes = [each for row in rows for each in row["tests"].values()]
    lacking = sum(
        outcome == "failed" and reason(text, outcome, missing) in missing for outcome, text in outcomes
    )
    found = counts(rows)
    asked = found.total() - found["skipped"] - found["not collected"] - lacking
    return f"{found['passed'] / asked:.1%}" if asked else "-"


def choose_rows(rows: list[Row], names: list[str]) -> list[Row]:
    """Return the rows of the files of these names, in their order."""
    order = {name: i for i, name in enumerate(names)}
    return sorted((row for row in rows if row["file"] in order), key=lambda row: order[row["file"]])


def tables(rows: list[Row], missing: Mapping[str, str], folder: Callable[[str], str]) -> list[str]:
    """Return the parts of a page that show results.

    Args:
        rows: the results.
        missing: missing requirement to the pattern of a test's message.
        folder: returns the folder under which a file is counted.
    """
    return [
        "\n".join(_totals(rows, missing, folder)),
        "## Why tests do not pass",
        "\n".join(reasons(rows, ("failed", *UNDECIDED), missing)),
        "## Why tests are skipped",
        "\n".join(reasons(rows, ("skipped",), missing)),
        "## Each file",
        "\n".join([*head("", "tests"), *(line(row["file"], file_cell(row)) for row in rows)]),
    ]


def page(rows: list[Row], names: list[str], revisions: dict[str, str]) -> str:
    """Return the page as Markdown, for the files of the default parts."""
    rows = choose_rows(rows, names)
    commits = " and ".join(f"Ascend/{name} at {commit}" for name, commit in revisions.items())
    parts = [
        "# The vendor's own tests",
        f"Made by `make ascend-tests`: the tests of {commits}, with the vendor's torch_npu 2.13.0, over the "
        "reference runtime of AscendCL on two host devices with 16 GiB each, four for most of distributed. "
        f"{len(rows)} of {len(names)} files have been run. "
        "Share: passed, of the tests that are neither skipped nor lack something named under the first four reasons "
        "and their like below; a test that is cut off has not passed.",
        *tables(rows, MISSING, _folder),
    ]
    return "\n\n".join(parts) + "\n"
