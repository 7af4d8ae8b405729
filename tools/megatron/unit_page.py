"""Generate docs/results/megatron-unit-tests.md: results of Megatron's own unit tests on host devices."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

ROOT = "tests/unit_tests/"
COLUMNS = ("passed", "failed", "skipped", "timed out", "crashed", "not run", "not collected")
UNDECIDED = COLUMNS[3:]
OTHER = "other"
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
Row = dict[str, Any]


def reason(text: str, outcome: str) -> str:
    """Classify the reason given by a test; "other" if no pattern matches."""
    if outcome in ("timed out", "crashed", "not run"):
        return outcome
    return next((kind for kind, pattern in REASONS.items() if re.search(pattern, text)), OTHER)


def folder(file: str) -> str:
    """Return the top folder of a test file, such as ``transformer``; the file itself if it has none."""
    return file.removeprefix(ROOT).partition("/")[0]


def counts(rows: Iterable[Row]) -> Counter[str]:
    """Count tests by outcome."""
    return Counter(outcome for row in rows for outcome, _ in row["tests"].values())


def _line(*cells: object) -> str:
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _head(*cells: str) -> list[str]:
    return [_line(*cells), _line(*["---"] * len(cells))]


def _outcome_cells(found: Counter[str]) -> list[object]:
    undecided = sum(found[each] for each in UNDECIDED[:3])
    return [*(found[each] for each in COLUMNS[:3]), undecided, found["not collected"]]


def totals(rows: list[Row]) -> Iterator[str]:
    """Yield table lines by folder and number of ranks, then the totals."""
    yield from _head("", "ranks", "tests", "passed", "failed", "skipped", "cut off", "not collected")
    worlds = sorted({row["ranks"] for row in rows})
    for name in [*dict.fromkeys(folder(row["file"]) for row in rows), ""]:
        for world in worlds:
            found = counts(r for r in rows if r["ranks"] == world and name in ("", folder(r["file"])))
            if found:
                total = found.total() - found["not collected"]
                yield _line(name or "all", world, total, *_outcome_cells(found))


def reasons(rows: list[Row], outcomes: tuple[str, ...]) -> Iterator[str]:
    """Yield table lines by missing requirement with test counts per world size, then the unclassified reasons."""
    worlds = sorted({row["ranks"] for row in rows})
    kinds: dict[str, Counter[int]] = defaultdict(Counter)
    others: dict[str, Counter[int]] = defaultdict(Counter)
    for row in rows:
        for outcome, text in row["tests"].values():
            if outcome in outcomes:
                kind = reason(text, outcome)
                kinds[kind][row["ranks"]] += 1
                if kind == OTHER:
                    others[re.sub(r"\d{3,}", "N", text)[:110].strip()][row["ranks"]] += 1
    yield from _head("", *(f"{world} rank{'s' * (world > 1)}" for world in worlds))
    for kind, found in sorted(kinds.items(), key=lambda item: -item[1].total()):
        yield _line(kind, *(found[world] for world in worlds))
    if others:
        yield "\nThe others:\n"
        yield from _head("", *(f"{world}" for world in worlds))
        for text, found in sorted(others.items(), key=lambda item: -item[1].total()):
            yield _line(f"`{text.replace('`', chr(39))}`", *(found[world] for world in worlds))


def files(rows: list[Row], names: list[str], worlds: list[int]) -> Iterator[str]:
    """Yield one table line for each file: tests by outcome on each number of ranks."""
    yield from _head("", *(f"{world} rank{'s' * (world > 1)}" for world in worlds))
    by_file: dict[str, dict[int, Row]] = defaultdict(dict)
    for row in rows:
        by_file[row["file"]][row["ranks"]] = row
    for file in names:
        found = by_file[file]
        cells = [_file_cell(found[world]) if world in found else "not run" for world in worlds]
        yield _line(file.removeprefix(ROOT), *cells)


def _file_cell(row: Row) -> str:
    found = counts([row])
    details = [f"{found[each]} {each}" for each in COLUMNS[1:] if found[each]]
    return ", ".join([f"{found['passed']} passed", *details]) if found else "no tests"


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
        "\n".join(reasons(rows, failing)),
        "## Why tests are skipped",
        "\n".join(reasons(rows, ("skipped",))),
        "## Each file",
        "\n".join(files(rows, names, worlds)),
    ]
    return "\n\n".join(parts) + "\n"
