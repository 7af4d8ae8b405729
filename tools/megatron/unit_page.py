"""Generate docs/results/megatron-unit-tests.md: results of Megatron's own unit tests on host devices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import date

from tools.suites import UNDECIDED, Row, counts, file_cell, head, line, outcome_cells, reasons

ROOT = "tests/unit_tests/"
AGAIN = "\n## Run again\n"
# Missing requirement -> pattern of a test's message; the first match counts.
REASONS = {
    "more memory than a device has (8 GiB)": r"OutOfMemoryError",
    "another number of ranks": r"(?i:world.size|\branks\b|multi-?GPU|process group specified|root \d+ is not in)|"
    r"(?<!\w)\d+ GPUs|[TPE]P.*[*>].*|requires (exactly )?\d+ GPU|Requires exactly|number of GPUs|"
    r"launched with torchrun|over sized|cannot (do )?reshape.*mesh|shard factor|2-D DP mesh",
    "CUDA graphs": r"(?i)cuda ?graph",
    "Triton's kernels on a GPU": r"(?i)triton",
    "NCCL's symmetric memory or window API": r"SymmetricMemory|symm_mem|NCCL|nccl",
    "FP8, FP4": r"(?i)fp8|fp4|mxfp8|nvfp4|quantized",
    "a newer Transformer Engine": r"(?i)\bTE\b|transformer.?engine|grouped_gemm|Fused(MLP|Adam)|general_gemm|"
    r"QK clipping|GTP |Kitchen|NoneType.*not callable",
    "a GPU of a certain kind": r"SM\d\d|Hopper|Blackwell|cuDNN|cudnn|H100|TileLang|DeepGEMM|Deep EP|DeepEP|Hybrid EP",
    "a package that is not installed": r"ModuleNotFoundError|not installed|is required|package|pip install|"
    r"Install it|is required for",
    "a combination that Megatron leaves out": r"dp_outer sharding|not supported|does not support|not work for|"
    r"Late init|no_shard|NO_SHARD|only applies to|Spec function",
    "data that would be downloaded": r"/opt/data|FileNotFoundError|tokenizer",
}


def folder(file: str) -> str:
    """Return the top folder of a test file, such as ``transformer``; the file itself if it has none."""
    return file.removeprefix(ROOT).partition("/")[0]


def totals(rows: list[Row]) -> Iterator[str]:
    """Yield table lines by folder and number of ranks, then the totals."""
    yield from head("", "ranks", "tests", "passed", "failed", "skipped", "cut off", "not collected")
    worlds = sorted({row["ranks"] for row in rows})
    for name in [*dict.fromkeys(folder(row["file"]) for row in rows), ""]:
        for world in worlds:
            found = counts(r for r in rows if r["ranks"] == world and name in ("", folder(r["file"])))
            if found:
                total = found.total() - found["not collected"]
                yield line(name or "all", world, total, *outcome_cells(found))


def files(rows: list[Row], names: list[str], worlds: list[int]) -> Iterator[str]:
    """Yield one table line for each file: tests by outcome on each number of ranks."""
    yield from head("", *(f"{world} rank{'s' * (world > 1)}" for world in worlds))
    by_file: dict[str, dict[int, Row]] = defaultdict(dict)
    for row in rows:
        by_file[row["file"]][row["ranks"]] = row
    for file in names:
        found = by_file[file]
        cells = [file_cell(found[world]) if world in found else "not run" for world in worlds]
        yield line(file.removeprefix(ROOT), *cells)


def page(rows: list[Row], names: list[str], worlds: list[int], version: str, limits: str) -> str:
    """Return the page as Markdown, for the requested files and numbers of ranks."""
    missing = len(names) * len(worlds) - len(rows)
    if missing:
        limits += f" Not run so far: {missing} of the {len(names) * len(worlds)} runs of a file, named below."
    failing = ("failed", *UNDECIDED)
    parts = [
        "# Megatron's own unit tests",
        f"Made by `make megatron`: the unit tests of Megatron-LM {version} under `import isthmus.megatron`, on one, "
        f"two and four host devices. {limits}",
        "A test has passed if it passed on every rank. Transformer Engine's layers are the stand-ins of "
        "`isthmus.megatron`; einops, pytest-mock and pytest-asyncio are installed for the run. Most tests are "
        "written for eight GPUs.",
        "\n".join(totals(rows)),
        "## Why tests fail",
        "\n".join(reasons(rows, failing, REASONS)),
        "## Why tests are skipped",
        "\n".join(reasons(rows, ("skipped",), REASONS)),
        "## Each file",
        "\n".join(files(rows, names, worlds)),
    ]
    return "\n\n".join(parts) + "\n"


def again(
    text: str, day: date, rows: list[Row], names: list[str], worlds: list[int], version: str, limits: str
) -> str:
    """Return the page with a last section about files that ran again; one of an earlier day is replaced.

    Args:
        text: the page.
        day: day of the run.
    """
    parts = [
        text.partition(AGAIN)[0].rstrip("\n"),
        AGAIN.strip(),
        f"These files ran again on {day}, with Megatron-LM {version}, after the runs of the tables above, which do "
        f"not count them. {limits}",
        "\n".join(files(rows, names, worlds)),
        "Why tests fail:",
        "\n".join(reasons(rows, ("failed", *UNDECIDED), REASONS)),
        "Why tests are skipped:",
        "\n".join(reasons(rows, ("skipped",), REASONS)),
    ]
    return "\n\n".join(parts) + "\n"
