"""The page of results: how mistakes are planted, their classes with public reports, the score."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from isthmus._support.files import write_file
from tools.mutation import compiled, reports, source
from tools.mutation.classes import MUTATIONS
from tools.mutation.mutant import CLASSES

THREADS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("threads.toml").read_text())

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

The correct kernels are those of the numpy chip and the compiled ones of `csrc/kernels`. A mutant is *caught* if a
case of its operator fails in the suite. Mutants run in child processes: a crash or a hang counts as caught. A correct
kernel that fails is a *false alarm*.

A mistake is planted wherever a kernel of the operator could have it, by the operator's schema, dtypes and ranks, not
by the samples of the suite. Mutants are drawn by seed: the same number of each class, in turn from each kind of
mistake. A run fails if a class is below 95 % or the total below 98 %.

To compare two revisions of the suite on the same mutants, run `--output FILE` in one and `--mutants FILE` in the
other, each in its own checkout; `--against FILE` prints the score of an earlier run beside.
"""


def write_page(file: Path, row: dict[str, Any], other: dict[str, Any] | None) -> None:
    """Write the page of a run, with the score of an earlier run beside it."""
    text = "\n".join([_HEAD, *_score(row, other), *_survivors(row), *_classes()]).rstrip() + "\n"
    write_file(file, [text.encode()])


def percent(share: float | None) -> str:
    """Return a share for a table."""
    return "-" if share is None else f"{100 * share:.1f} %"


def _score(row: dict[str, Any], other: dict[str, Any] | None) -> list[str]:
    drawn = f"seed {row['seed']}" if row["seed"] is not None else "a given list"
    lines = [
        "## Score\n",
        f"Of {drawn}, opset `{row['opset'][:12]}`, in {row['seconds']:.0f} s.\n",
        f"| class | mutants | caught | survived | equivalent | score |{' before |' if other else ''}",
        f"|---|---:|---:|---:|---:|---:|{'---:|' if other else ''}",
    ]
    for name, counts in [*row["classes"].items(), ("**all**", row)]:
        before = (
            (other if name == "**all**" else other["classes"].get(name, {"score": None})) if other else None
        )
        cells = [*(str(counts[key]) for key in ("mutants", "caught", "survived", "equivalent"))]
        last = f" {percent(before['score'])} |" if before else ""
        lines.append(f"| {name} | {' | '.join(cells)} | {percent(counts['score'])} |{last}")
    alarms = len(row["false_alarms"])
    lines.append(
        f"\nFalse alarms: {alarms or 'none'}. {row['raised']} mutants were caught because the kernel raised"
    )
    lines.append("an error, the rest by their results or by a crash.\n")
    lines.append(
        "No input distinguishes an *equivalent* mutant from the correct kernel: `equivalent.toml` has the"
    )
    lines.append("proofs. It does not count. `benchmarks/results/mutation.json` has the full result.")
    if row["untried"]:
        lines.append(
            f"Not tried, because Python kernels cannot receive complex tensors: {_code(row['untried'])}."
        )
    return [*lines, ""]


def _survivors(row: dict[str, Any]) -> list[str]:
    if not row["survivors"]:
        return []
    lines = ["## Survivors\n", "| class | kernel | mistake |", "|---|---|---|"]
    for each in row["survivors"]:
        detail = f" ({each['detail']})" if each["detail"] else ""
        text = f"{each['mutation']}{detail}".replace("|", "\\|").replace("](", "] (")  # no link
        lines.append(f"| {each['kind']} | `{each['kernel']}` | {text} |")
    return [*lines, ""]


def _classes() -> list[str]:
    lines = ["## Classes\n"]
    for kind in CLASSES:
        lines.append(f"### {kind.capitalize()}\n")
        lines += [f"- *{mutation.name}*: {mutation.text}" for mutation in MUTATIONS[kind]]
        lines += [
            f"- *{name}* in source: {text}" for name, (of, text) in source.MUTATIONS.items() if of == kind
        ]
        names = dict.fromkeys(rule[0].removeprefix("C++ ") for rule in compiled.RULES if rule[1] == kind)
        if names:
            lines.append(f"- in the compiled kernels: {', '.join(names)}")
        lines.append("\nReal ones:\n")
        lines += [f"- {_link(thread)}: {text}" for thread, text in THREADS[kind].items()]
        planted = {r.source: r.text for r in reports.REPORTS if r.kind == kind}
        lines += [f"- {_link(thread)} (planted as reported): {text}" for thread, text in planted.items()]
        lines.append("")
    return lines


def _link(thread: str) -> str:
    repository, _, number = thread.partition("#")
    return f"[{thread}](https://github.com/{repository}/issues/{number})"


def _code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
