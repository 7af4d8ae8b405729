"""Comparison of two traces: time of each operator and kernel before and after a change."""

import fnmatch
from dataclasses import dataclass

from isthmus_common.units import format_size
from isthmus_diagnostics.profile.hot import Hot
from isthmus_diagnostics.profile.modules import module_totals
from isthmus_diagnostics.profile.operators import Total, mean_totals
from isthmus_diagnostics.profile.ranks import links
from isthmus_diagnostics.profile.report import Section, format_time
from isthmus_diagnostics.profile.steps import breakdown, mean, steps
from isthmus_diagnostics.profile.trace import Trace

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


def module_section(before: list[Trace], after: list[Trace], top: int) -> Section:
    """Return the comparison by module, which finds what belongs together where the operators differ."""
    first, second = (
        mean_totals(list(map(module_totals, traces)), sum(len(steps(trace)) for trace in traces))
        for traces in (before, after)
    )
    found = pairs(first, second)
    return _table("Modules of the model", found, top, host=False)


def step_section(before: list[Trace], after: list[Trace], top: int) -> Section:
    """Return the mean step of both folders, and of the ranks in both whose step changed most."""
    section = Section("Steps", ["rank and part", "A", "B", "B - A", "B / A"])
    first, second = ({trace.name: mean(breakdown(trace)) for trace in traces} for traces in (before, after))
    both = sorted(first.keys() & second.keys(), key=lambda name: -abs(second[name].time - first[name].time))
    compared = [(f"rank {name}", first[name], second[name]) for name in both[:top]]
    if len(first) > 1 or len(second) > 1:
        compared.insert(0, ("mean", mean(list(first.values())), mean(list(second.values()))))
    for name, one, other in compared:
        for kind in ("time", "compute", "exposed", "overlapped", "copies", "free", "bubble"):
            row = _compare_row(getattr(one, kind), getattr(other, kind))
            section.rows.append([f"{name}, {_NAMES.get(kind, kind)}", *row])
    section.note = f"{len(first)} ranks in A, {len(second)} in B."
    return section


def link_section(before: list[Trace], after: list[Trace], top: int) -> Section:
    """Return the collectives of both folders by name, group and bytes, the largest change first."""
    section = Section("Links", ["collective, group and bytes", "A", "B", "B - A", "B / A"])
    first, second = (
        {(link.name, link.group, link.bytes): link.time for link in links(each)} for each in (before, after)
    )
    both = sorted(first.keys() & second.keys(), key=lambda key: -abs(second[key] - first[key]))
    for name, group, size in both[:top]:
        row = _compare_row(first[name, group, size], second[name, group, size])
        section.rows.append([f"{name} {group} {format_size(size)}", *row])
    return section


def _compare_row(first: float, second: float) -> list[str]:
    ratio = f"{second / first:.3f}" if first > 0 else "-"
    return [format_time(first), format_time(second), _format_signed(second - first), ratio]


def _summary(before: Hot, after: Hot) -> Section:
    section = Section("The mean rank and step", ["", "A", "B", "B - A", "B / A"])
    figures = {
        "time covered": (before.span, after.span),
        "device busy": (sum(before.busy.values()), sum(after.busy.values())),
        "device idle": (before.span - sum(before.busy.values()), after.span - sum(after.busy.values())),
    }
    for name, (first, second) in figures.items():
        section.rows.append([name, *_compare_row(first, second)])
    return section


def _format_signed(microseconds: float) -> str:
    return ("+" if microseconds > 0 else "") + format_time(microseconds)


def _count(total: Total) -> str:
    return f"{total.calls:.1f}".removesuffix(".0")


def _mean(total: Total) -> str:
    return format_time(total.time / total.calls) if total.calls else "-"


def _table(title: str, found: list[Pair], top: int, host: bool) -> Section:
    head = ["name", "calls A", "calls B", "device A", "device B", "B - A", "B / A", "mean A", "mean B"]
    section = Section(title, [*head, *(["host A", "host B"] if host else [])])
    shown = [pair for pair in found if pair.before.time or pair.after.time or host][:top]
    for pair in shown:
        times = [format_time(pair.before.time), format_time(pair.after.time), _format_signed(pair.delta)]
        row = [pair.name, _count(pair.before), _count(pair.after), *times, pair.status]
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
        section.rows.append([name, _count(first), _count(second), *times])
    return section
