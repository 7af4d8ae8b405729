"""Reports of ``isthmus migrate verify``: tables or JSON."""

import json
import math
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

from isthmus_common.tables import plain_table
from isthmus_common.text import count
from isthmus_common.units import GIB
from isthmus_migrate.verify.limits import MULTIPLE
from isthmus_migrate.verify.run import Run
from isthmus_migrate.verify.session import Task, Verdict

_SHOWN = 20  # residual references


def as_json(task: Task, verdict: Verdict) -> str:
    """Return the verdict as JSON."""
    return json.dumps(
        {
            "script": str(task.script),
            "arguments": list(task.arguments),
            "steps": task.steps,
            "same": verdict.same,
            "problem": verdict.problem,
            "within_noise": verdict.noisy,
            "not_compared": list(verdict.left_out),
            "original_repeats_itself": verdict.repeats,
            "comparisons": [
                {**each._asdict(), "difference": _finite(each.difference)} for each in verdict.comparisons
            ],
            "conversion": verdict.conversion._asdict() if verdict.conversion else None,
            "cuda_references_executed": [each._asdict() for each in verdict.residuals],
            "runs": [_facts(run) for run in (verdict.original, verdict.other) if run],
        },
        indent=2,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _facts(run: Run) -> dict[str, Any]:
    records = run.records
    device = [record.device_peak for record in records if record.device_peak is not None]
    return {
        "name": run.side.name,
        "status": run.status,
        "seconds": round(run.seconds, 3),
        "step_seconds": max((record.step_seconds for record in records), default=0.0),
        "optimizer_steps": [record.steps for record in records],
        "losses": [record.losses for record in records],
        "host_peak_bytes": max((record.host_peak for record in records), default=0),
        "device_peak_bytes": max(device) if device else None,
        "fallbacks": _fallbacks(run),
        "errors": run.errors if run.status != 0 else [],
    }


def _fallbacks(run: Run) -> dict[str, int] | None:
    """Return operator -> calls over all ranks; None if the device does not count them."""
    counted = [record.fallbacks for record in run.records if record.fallbacks is not None]
    if not counted:
        return None
    return {
        name: sum(each.get(name, 0) for each in counted)
        for name in sorted({n for each in counted for n in each})
    }


def print_table(verdict: Verdict, console: Console) -> None:
    """Print the comparisons, time and memory of each run, the remaining CUDA references, and the verdict."""
    if verdict.conversion:
        files, changes, left = verdict.conversion
        counts = f"{count(changes, 'change')} in {count(files, 'executed file')}"
        nothing = (
            "" if changes else "; give the script as it was before `convert --write`, unless it needs none"
        )
        console.print(f"converted: {counts}{nothing}", *_describe_left(left), sep="\n")
    if verdict.comparisons:
        console.print(_comparisons(verdict))
    if verdict.other:
        console.print(_runs([verdict.original, verdict.other]))
    if verdict.residuals:
        where = ", by line of the converted copy" if verdict.conversion else ""
        console.print(f"executed references to CUDA{where}:")
        for path, line, subject in verdict.residuals[:_SHOWN]:
            console.print(f"  {path}:{line}: {subject}")
        if len(verdict.residuals) > _SHOWN:
            console.print(f"  and {len(verdict.residuals) - _SHOWN} more; --json lists all")
    if verdict.left_out:
        console.print(
            "not compared:",
            *(f"  {line}" for line in verdict.left_out),
            sep="\n",
            markup=False,
            soft_wrap=True,
        )
    console.print(f"verdict: {_summary(verdict)}", markup=False, soft_wrap=True)


def _summary(verdict: Verdict) -> str:
    if verdict.problem:
        return f"FAILED: {verdict.problem}"
    if not verdict.same:
        differing = ", ".join(each.subject for each in verdict.comparisons if not each.same)
        inconclusive = "; inconclusive: two runs of the original differ too, so it is not deterministic"
        return f"DIFFERENT: {differing}{inconclusive if verdict.repeats is False else ''}"
    if verdict.noisy:
        return f"same, within {MULTIPLE} times the effect of rounding noise on the original"
    return "same"


def _describe_left(left: Iterable[str]) -> list[str]:
    return [f"  not converted: {each}" for each in left]


def _comparisons(verdict: Verdict) -> Table:
    rows = []
    for each in verdict.comparisons:
        found = "within noise" if each.noisy else "same" if each.compared else "none"
        figures = [str(each.compared), f"{each.difference:.2g}", f"{each.tolerance:.2g}"]
        rows.append([each.subject, *figures, found if each.same else "DIFFERENT", each.detail])
    return plain_table(["compared", "values", "difference", "tolerance", "verdict", ""], rows)


def _runs(runs: list[Run]) -> Table:
    head = ["run", "steps", "seconds", "s/step", "host GiB", "device GiB", "fallbacks"]
    return plain_table(head, [_run(_facts(run)) for run in runs])


def _run(facts: dict[str, Any]) -> list[str]:
    fallbacks, device = facts["fallbacks"], facts["device_peak_bytes"]
    return [
        facts["name"],
        "/".join(map(str, facts["optimizer_steps"])) or "0",
        f"{facts['seconds']:.1f}",
        f"{facts['step_seconds']:.3f}",
        f"{facts['host_peak_bytes'] / GIB:.2f}",
        "-" if device is None else f"{device / GIB:.2f}",
        "-" if fallbacks is None else ", ".join(f"{name} ({n})" for name, n in fallbacks.items()) or "0",
    ]
