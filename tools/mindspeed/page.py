"""Generate docs/results/mindspeed.md: training with MindSpeed, and its own unit tests, over the reference runtime."""

from __future__ import annotations

from collections.abc import Iterator

from tools.ascend.vendor.page import choose_rows
from tools.megatron.checkout import Job
from tools.mindspeed.checkout import Versions
from tools.suites import UNDECIDED, Row, counts, file_cell, head, line, outcome_cells, reasons

ROOT = "tests_extend/unit_tests/"
# Cause -> pattern of a test's message; the first match counts.
FAILED = {
    "an extension that is compiled with CANN's headers": r"\['false', |mindspeed-extensions",
    "a function that is not implemented": r"not in libopapi",
    "a package that is not installed": r"ModuleNotFoundError",
}
SKIPPED = {
    "more ranks than devices": r"not enough NPUs",
    "marked slow by MindSpeed": r"slow test",
    "not for this NPU, CANN or version, says MindSpeed": r"(?i)not support|device type|cann|for inf|DT series",
    "not stable, says MindSpeed": r"(?i)temporar|to be (fixed|located)|can not be built",
}


def _training(jobs: list[Job]) -> Iterator[str]:
    yield from head("ranks", "options", "loss of iteration 10", "largest relative difference", "")
    for job in jobs:
        options = f"`{job.flags}`" if job.flags else "-"
        if job.error:
            yield line(job.ranks, options, "", "", f"failed: {job.error[:200]}")
        else:
            verdict = "differs" if job.has_failed else "equal"
            yield line(job.ranks, options, f"{job.loss:.6f}", f"{job.off:.1e}", verdict)


def _folder(file: str) -> str:
    return "/".join(file.removeprefix(ROOT).split("/")[:-1][:2])


def _totals(rows: list[Row]) -> Iterator[str]:
    yield from head("", "tests", "passed", "failed", "skipped", "cut off", "not collected")
    for name in [*dict.fromkeys(_folder(row["file"]) for row in rows), ""]:
        found = counts(row for row in rows if name in ("", _folder(row["file"])))
        yield line(name or "all", found.total() - found["not collected"], *outcome_cells(found))


def page(jobs: list[Job], rows: list[Row], names: list[str], versions: Versions, devices: int) -> str:
    """Return the page as Markdown, for the test files of these names."""
    rows = choose_rows(rows, names)
    parts = [
        "# MindSpeed",
        f"Made by `make mindspeed`: MindSpeed at {versions.mindspeed} and Megatron-LM {versions.megatron}, "
        "with the vendor's torch_npu 2.13.0, over the reference runtime of AscendCL. Two lines of Megatron differ: "
        "the import that MindSpeed documents, and an argument that PyTorch 2.13 asks for in writing checkpoints. "
        "Without the ATB library, gradients are accumulated without fusion.",
        "## Training",
        "A GPT of 4 layers with mock data, float32 unless named. The first job saves a checkpoint at iteration 5; "
        "the others continue from it to iteration 10 and are compared with it, iteration by iteration. Those after "
        "the second job without options start from iteration 0 and are compared with that one. Megatron prints seven "
        "digits; equal means a relative difference of at most 1e-5, of bfloat16 and float16 1e-2.",
        "\n".join(_training(jobs)),
        "## Its own unit tests",
        f"`{ROOT.rstrip('/')}`, on {devices} host devices; a test starts its own ranks. {len(rows)} of "
        f"{len(names)} files have been run. MindSpeed compiles some of its operators with headers of CANN when they "
        "are first called; their licence forbids this here, so no compiler is given to the tests.",
        "\n".join(_totals(rows)),
        "## Why tests do not pass",
        "\n".join(reasons(rows, ("failed", *UNDECIDED), FAILED)),
        "## Why tests are skipped",
        "\n".join(reasons(rows, ("skipped",), SKIPPED)),
        "## Each file",
        "\n".join(
            [*head("", "tests"), *(line(row["file"].removeprefix(ROOT), file_cell(row)) for row in rows)]
        ),
    ]
    return "\n\n".join(parts) + "\n"
