"""Comparison of two traces: time of each operator and kernel before and after a change."""

import fnmatch
from dataclasses import dataclass

from isthmus.profile.hot import Hot
from isthmus.profile.modules import module_totals
from isthmus.profile.operators import Total
from isthmus.profile.report import Section, format_time
from isthmus.profile.steps import breakdown, mean
from isthmus.profile.trace import Trace

_NONE = Total()
_NAMES = {"time": "step", "exposed": "exposed communication", "overlapped": "overlapped communication"}


@dataclass
class Pair:
    """The totals of one name in both traces; times in microseconds."""

    name: str
    before: Total
    after: Total

    @property
    def delta(self) -> float:
        """Time in the second trace minus time in the first."""
        return self.after.time - self.before.time

    @property
    def status(self) -> str:
        """``new``, ``gone``, or the ratio of the times."""
        if not self.before.calls:
            return "new"
        if not self.after.calls:
            return "gone"
        return f"{self.after.time / self.before.time:.3f}" if self.before.time > 0 else "-"


def pairs(before: dict[str, Total], after: dict[str, Total], pattern: str = "*") -> list[Pair]:
    """Return the names of both traces that match a shell pattern, the largest change first."""
    found = [
        Pair(name, before.get(name, _NONE), after.get(name, _NONE))
        for name in {**before, **after}
        if fnmatch.fnmatchcase(name, pattern)
    ]
    return sorted(found, key=lambda pair: (-abs(pair.delta), pair.name))


def sections(before: Hot, after: Hot, pattern: str, top: int) -> list[Section]:
    """Return the report; with a pattern, of the matching operators and the kernels that they launched."""
    operators = pairs(before.operators, after.operators, pattern)
    kernels = pairs(before.kernels, after.kernels)
    if pattern != "*":
        launched = {name for pair in operators for name in pair.before.kernels | pair.after.kernels}
        kernels = [
            pair for pair in kernels if pair.name in launched or fnmatch.fnmatchcase(pair.name, pattern)
        ]
    return [
        _summary(before, after),
        _table("Operators, including their kernels", operators, top, host=True),
        _table("Kernels and copies", kernels, top, host=False),
        _calls(before, after),
    ]


def module_section(before: Trace, after: Trace, top: int) -> Section:
    """Return the comparison by module, which finds what belongs together where the operators differ."""
    found = pairs(module_totals(before), module_totals(after))
    return _table("Modules of the model", found, top, host=False)


def step_section(before: list[Trace], after: list[Trace]) -> Section:
    """Return the mean step of each rank in both folders."""
    section = Section("Steps by rank", ["rank and part", "A", "B", "B - A", "B / A"])
    ranks = {trace.rank: trace for trace in after}
    for trace in before:
        if trace.rank in ranks:
            first, second = mean(breakdown(trace)), mean(breakdown(ranks[trace.rank]))
            for kind in ("time", "compute", "exposed", "overlapped", "copies", "free"):
                row = _compared(getattr(first, kind), getattr(second, kind))
                section.rows.append([f"rank {trace.rank}, {_NAMES.get(kind, kind)}", *row])
    return section


def _compared(first: float, second: float) -> list[str]:
    ratio = f"{second / first:.3f}" if first > 0 else "-"
    return [format_time(first), format_time(second), _signed(second - first), ratio]


def _summary(before: Hot, after: Hot) -> Section:
    section = Section("Whole traces", ["", "A", "B", "B - A", "B / A"])
    figures = {
        "time covered": (before.span, after.span),
        "device busy": (sum(before.busy.values()), sum(after.busy.values())),
        "device idle": (sum(gap.duration for gap in before.gaps), sum(gap.duration for gap in after.gaps)),
    }
    for name, (first, second) in figures.items():
        section.rows.append([name, *_compared(first, second)])
    return section


def _signed(microseconds: float) -> str:
    return ("+" if microseconds > 0 else "") + format_time(microseconds)


def _mean(total: Total) -> str:
    return format_time(total.time / total.calls) if total.calls else "-"


def _table(title: str, found: list[Pair], top: int, host: bool) -> Section:
    head = ["name", "calls A", "calls B", "device A", "device B", "B - A", "B / A", "mean A", "mean B"]
    section = Section(title, [*head, *(["host A", "host B"] if host else [])])
    shown = [pair for pair in found if pair.before.time or pair.after.time or host][:top]
    for pair in shown:
        times = [format_time(pair.before.time), format_time(pair.after.time), _signed(pair.delta)]
        row = [pair.name, str(pair.before.calls), str(pair.after.calls), *times, pair.status]
        row += [_mean(pair.before), _mean(pair.after)]
        if host:
            row += [format_time(pair.before.host_time), format_time(pair.after.host_time)]
        section.rows.append(row)
    new = sum(pair.status == "new" for pair in found)
    gone = sum(pair.status == "gone" for pair in found)
    section.note = f"{len(shown)} of {len(found)} shown; {new} new in B, {gone} only in A."
    return section


def _calls(before: Hot, after: Hot) -> Section:
    section = Section("Runtime calls", ["call", "calls A", "calls B", "host A", "host B"])
    for name, first in before.calls.items():
        second = after.calls[name]
        times = [format_time(first.host_time), format_time(second.host_time)]
        section.rows.append([name, str(first.calls), str(second.calls), *times])
    return section
