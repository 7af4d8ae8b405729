"""Run each call of a dump again on a device, and judge its results by the same operator on CPU in float64."""

import json
import math
import multiprocessing
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from isthmus.opset.names import matches
from isthmus_common.files import make_file
from isthmus_common.progress import Bar
from isthmus_diagnostics.accuracy import dumps
from isthmus_diagnostics.accuracy.reading import Rank, Recorded
from isthmus_diagnostics.accuracy.replaying import NotReplayed, arguments_of, call_of
from isthmus_diagnostics.debug import reference
from isthmus_diagnostics.debug.intercept import hide_calls
from isthmus_diagnostics.debug.replay import run_on
from isthmus_diagnostics.debug.verdict import judge


class Checked(NamedTuple):
    """The judgement of one call.

    Attributes:
        key: rank and number of the call.
        operator: overload.
        line: of the program.
        verdict: ``pass``, ``fail`` or ``skipped``.
        reason: what is wrong, or why it was skipped.
        ulps: largest error in units in the last place; -1 if unknown.
        ulp, accumulate: limits (:class:`isthmus.opset.operator.Tolerance`).
        source: where they come from, "opset" or "default".
        dtype: of the first result.
    """

    key: str
    operator: str
    line: str
    verdict: str
    reason: str = ""
    ulps: float = -1.0
    ulp: float = 0.0
    accumulate: float = 0.0
    source: str = ""
    dtype: str = ""


def check(
    folder: Path, out: Path, device: str, pattern: str = "*", calls: int = 16, jobs: int = 1
) -> list[Checked]:
    """Check the calls of a dump; judgements that the file already has are kept.

    Args:
        folder: dump, of tensors; of statistics, inputs are drawn that have the same.
        out: JSON Lines file of the judgements, appended to.
        device: to run on.
        pattern: operators.
        calls: most calls of each operator, of different shapes first.
        jobs: processes.

    Raises:
        AccuracyError: the dump cannot be read.
    """
    done = {row.key: row for row in _earlier_results(out)}
    ranks = dumps.read(folder)
    wanted = [(_key(rank.number, c), c) for rank in ranks for c in choose_calls(rank.calls, pattern, calls)]
    left = [(key, device) for key, _ in wanted if key not in done]
    if left:
        make_file(out)
        with out.open("a") as file, Bar("checking") as bar:
            for number, row in enumerate(_judge_calls(folder, ranks, left, jobs), 1):
                done[row.key] = row
                file.write(json.dumps(row._asdict()) + "\n")
                file.flush()
                bar.at(row.operator, number, len(left))
    return [done[key] for key, _ in wanted]


def _judge_calls(
    folder: Path, ranks: list[Rank], tasks: list[tuple[str, str]], jobs: int
) -> Iterator[Checked]:
    if jobs == 1:
        _open(ranks)
        yield from map(_judge, tasks)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, _open_folder, (folder,)) as pool:
        yield from pool.imap_unordered(_judge, tasks, 8)


def _earlier_results(out: Path) -> Iterator[Checked]:
    if not out.is_file():
        return
    for line in out.read_text().splitlines():
        try:
            yield Checked(**json.loads(line))
        except (ValueError, TypeError):  # cut off by the end of the run that wrote it
            continue


def _key(rank: int, call: Recorded) -> str:
    return f"{rank}:{call.number}"


def choose_calls(recorded: list[Recorded], pattern: str, most: int) -> list[Recorded]:
    """Return up to `most` calls of each operator, those of new shapes and dtypes first."""
    by_operator: dict[str, list[Recorded]] = {}
    seen: set[Any] = set()
    late: dict[str, list[Recorded]] = {}
    for call in recorded:
        if "::" not in call.operator or not matches(call.operator, pattern):
            continue
        if call.operator.startswith(("c10d::", "_c10d_functional::", "optimizer::")):
            continue
        shapes = (call.operator, *((c.dtype, c.shape) for c in call.inputs.values()))
        group = late if shapes in seen else by_operator
        seen.add(shapes)
        group.setdefault(call.operator, []).append(call)
    for operator, others in late.items():
        by_operator[operator] += others
    return [call for group in by_operator.values() for call in group[:most]]


_calls: dict[str, Recorded] = {}


def _open_folder(folder: Path) -> None:
    _open(dumps.read(folder))


def _open(ranks: list[Rank]) -> None:
    _calls.clear()
    _calls.update({_key(rank.number, call): call for rank in ranks for call in rank.calls})


def _judge(task: tuple[str, str]) -> Checked:
    key, device = task
    call = _calls[key]
    skipped = Checked(key, call.operator, call.at, "skipped")
    try:
        return _run(key, call, device)
    except (NotReplayed, reference.NoReference) as why:
        return skipped._replace(reason=str(why))
    except (RuntimeError, TypeError, NotImplementedError) as error:
        return skipped._replace(reason=f"failed on {device}: {str(error).splitlines()[0][:200]}")


def _run(key: str, call: Recorded, device: str) -> Checked:
    op, arguments = arguments_of(call, drawn=True)
    with hide_calls():
        if why := reference.why_none(call_of(op, arguments)):
            raise NotReplayed(why)
        results = run_on(device, op, arguments)
        expected = reference.compute_expected(call.operator, arguments)
    if len(results) != len(expected.exact):
        raise NotReplayed("the number of results differs")
    reason, worst, row = "", -1.0, None
    for index, (name, got) in enumerate(results):
        limit = reference.limit_of(call.operator, got.dtype)
        exact, native = expected.exact[index][1], expected.native[index]
        difference, ulps = judge(name, got, exact, native, limit, expected.magnitudes[index])
        reason = reason or (difference.text if difference else "")
        worst = max(worst, ulps if math.isfinite(ulps) else -1.0)
        row = row or (limit, str(got.dtype)[6:])
    limit, dtype = row or (reference.limit_of(call.operator, torch.float32), "")
    return Checked(
        key, call.operator, call.at, "fail" if reason else "pass", reason, worst,
        limit.ulp, limit.accumulate, limit.source, dtype,
    )  # fmt: skip


def table(rows: list[Checked]) -> list[list[str]]:
    """Return a row for each operator and dtype: calls, failures, worst error, limits; failures first."""
    groups: dict[tuple[str, str], list[Checked]] = {}
    for row in rows:
        groups.setdefault((row.operator, row.dtype), []).append(row)
    cells = []
    for (operator, dtype), group in groups.items():
        counts = Counter(row.verdict for row in group)
        first = next((row for row in group if row.verdict == "fail"), group[0])
        limit = f"{first.ulp:g} ulp" + (f" + {first.accumulate:g} steps" if first.accumulate else "")
        worst = max(row.ulps for row in group)
        cells.append([
            operator, dtype or "-", str(len(group)), str(counts["fail"]), str(counts["skipped"]),
            f"{worst:.3g}" if worst >= 0 else "-", limit if first.source else "-", first.reason or "-",
        ])  # fmt: skip
    return sorted(cells, key=lambda row: (-int(row[3]), row[0]))


HEAD = ["operator", "dtype", "calls", "wrong", "skipped", "worst ulp", "limit", "first finding"]
