"""The page of results: how mistakes are planted, the score by class, survivors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isthmus_common.files import write_file

COUNTS = ("mutants", "caught", "survived", "equivalent")

_HEAD = """# How strict is the conformance suite?

Mutation testing of `isthmus conform`: plant one mistake in a correct kernel, run the suite, count what it detects.
To test a chip, see [Conformance](../chip-makers/conformance.md).

```bash
make mutate                                              # a sample; minutes on two cores
python -m tools.mutation --seed 7 --per-class 200        # another and larger sample
python -m tools.mutation --operators 'aten::*softmax*'   # some operators
python -m tools.mutation --all                           # every mutant; hours
isthmus conform run --mutation benchmarks/results/mutation.json --output report   # the score in a report
```

The correct kernels are those of the numpy chip and the compiled ones of `packages/isthmus/csrc/kernels`. A mutant is
*caught* if a case of its operator fails in the suite, or if its process crashes or hangs. A mistake is planted
wherever a kernel of the operator could have it, by the operator's schema, dtypes and ranks, not by the samples of the
suite. Mutants are drawn by seed: the same number of each class, in turn from each kind of mistake. A run fails if a
class is below 95 %, the total below 98 %, or if a correct kernel fails (a *false alarm*). `tools/mutation/classes`
describes each kind of mistake; [silent errors](../chip-makers/silent-errors.md) of real kernels are among them.

To compare two revisions of the suite on the same mutants, run `--output FILE` in one and `--mutants FILE` in the
other, each in its own checkout with the same `tools/mutation`; `--against FILE` prints the other score beside.
"""


def write_page(file: Path, row: dict[str, Any], other: dict[str, Any] | None) -> None:
    """Write the page of a run, with the score of another suite on the same mutants beside it."""
    text = "\n".join([_HEAD, *_score(row, other), *_survivors(row)]).rstrip() + "\n"
    write_file(file, [text.encode()])


def percent(share: float | None) -> str:
    """Return a share for a table."""
    return "-" if share is None else f"{100 * share:.1f} %"


def _score(row: dict[str, Any], other: dict[str, Any] | None) -> list[str]:
    drawn = f"Seeds {', '.join(map(str, row['seeds']))}" if row["seeds"] else "All mutants"
    lines = [
        "## Score\n",
        f"{drawn}; opset `{row['opset'][:12]}`; {row['seconds']:.0f} s.\n",
        f"| class | {' | '.join(COUNTS)} | score |{' old suite |' if other else ''}",
        f"|---|{'---:|' * (6 if other else 5)}",
    ]
    before = {**other["classes"], "**all**": other} if other else {}
    for name, counts in {**row["classes"], "**all**": row}.items():
        cells = [name, *(str(counts[key]) for key in COUNTS), percent(counts["score"])]
        cells += [percent(before[name]["score"]) if name in before else "-"] if other else []
        lines.append(f"| {' | '.join(cells)} |")
    if other:
        lines.append(f"\nThe old suite has opset `{other['opset'][:12]}` and was tried on the same mutants.")
    lines += [
        f"\nFalse alarms: {len(row['false_alarms']) or 'none'}. {row['raised']} mutants were caught because the "
        "kernel raised an error, the others",
        "by their results or by a crash. No input distinguishes an *equivalent* mutant from the correct kernel:",
        "`equivalent.toml` has the proofs, and it does not count. `benchmarks/results/mutation.json` has the full",
        "result.",
    ]
    if row["untried"]:
        names = ", ".join(f"`{name}`" for name in row["untried"])
        lines.append(f"Not tried, because Python kernels cannot receive complex tensors: {names}.")
    return [*lines, ""]


def _survivors(row: dict[str, Any]) -> list[str]:
    if not row["survivors"]:
        return []
    lines = ["## Survivors\n", "| class | kernel | mistake |", "|---|---|---|"]
    for each in row["survivors"]:
        kernel, _, mistake = each["name"].partition(": ")
        text = mistake.replace("|", "\\|").replace("](", "] (")  # no link
        lines.append(f"| {each['kind']} | `{kernel}` | {text} |")
    return [*lines, ""]
