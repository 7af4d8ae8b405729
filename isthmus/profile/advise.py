"""Advice on a profile: rules applied to traces, each with lines of the user's code, time at stake and the change."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from isthmus.profile.detectors import DETECTORS, Context, Hit
from isthmus.profile.intervals import Intervals, clip, length, minus, union
from isthmus.profile.report import Section, format_share, format_time
from isthmus.profile.trace import Trace

_RULES = Path(__file__).parent / "rules"
_PLACES = 5  # of a finding


@dataclass(frozen=True, eq=False)
class Rule:
    """A file of ``rules/``.

    Attributes:
        name: name of the file.
        order: rules are applied in this order; time that one has found is not counted again by a later one.
        title: what is wrong.
        detector: function of ``detectors.py``, called with ``parameters``.
        share: least time at stake, as a share of the step without the stalls that other rules find.
        per_step: least occurrences in a step.
        stall: nothing else goes on in what it finds.
        change: what to change.
        command: what isthmus can do about it.
    """

    name: str
    order: int
    title: str
    detector: str
    change: str
    share: float = 0.0
    per_step: float = 0.0
    stall: bool = False
    command: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass
class Cause:
    """A line of the user's code, or an operator if the trace has no frames; figures per step."""

    where: str
    time: float
    calls: float
    file: str = ""
    line: int = 0


@dataclass
class Finding:
    """What a rule found in the trace of a rank; times in microseconds of a step."""

    rule: str
    title: str
    rank: int
    time: float
    share: float
    calls: float
    causes: list[Cause]
    change: str
    command: str


@cache
def rules() -> list[Rule]:
    """Return all rules in their order."""
    found = [Rule(path.stem, **tomllib.loads(path.read_text())) for path in _RULES.glob("*.toml")]
    return sorted(found, key=lambda rule: rule.order)


def advise(traces: list[Trace], sources: list[Path]) -> list[Finding]:
    """Apply the rules to the traces of all ranks.

    Args:
        traces: one for each rank.
        sources: folders of the user's code.

    Returns:
        For each rule the rank with most time at stake, most time first.
    """
    worst: dict[str, Finding] = {}
    for trace in traces:
        context = Context(trace, [other for other in traces if other is not trace], sources)
        for finding in _of_rank(context):
            if finding.rule not in worst or finding.time > worst[finding.rule].time:
                worst[finding.rule] = finding
    return sorted(worst.values(), key=lambda finding: -finding.time)


def _of_rank(context: Context) -> list[Finding]:
    hits = {rule: list(DETECTORS[rule.detector](context, **rule.parameters)) for rule in rules()}
    times = {rule: union(*(hit.time for hit in found)) for rule, found in hits.items()}
    claimed: Intervals = []
    findings = []
    for rule in rules():
        stalls = union(*(times[other] for other in rules() if other.stall and other is not rule))
        finding = _finding(rule, context, hits[rule], claimed, stalls)
        if finding:
            findings.append(finding)
            claimed = union(claimed, times[rule])
    return findings


def _finding(
    rule: Rule, context: Context, hits: list[Hit], claimed: Intervals, stalls: Intervals
) -> Finding | None:
    steps = len(context.steps)
    span = sum(step.end - step.start for step in context.steps)
    within: Intervals = [(step.start, step.end) for step in context.steps]
    causes: dict[str, Cause] = {}
    times: dict[str, list[Intervals]] = defaultdict(list)
    for hit in hits:
        cause = _cause(context, hit)
        causes.setdefault(cause.where, cause).calls += 1 / steps
        times[cause.where].append(hit.time)
    for where, cause in causes.items():
        cause.time = _new(union(*times[where]), claimed, within) / steps
    time = _new(union(*(hit.time for hit in hits)), claimed, within)
    least = rule.share * (span - _new(stalls, [], within))
    if not hits or time < least or len(hits) < rule.per_step * steps:
        return None
    ranked = sorted(causes.values(), key=lambda cause: (-cause.time, cause.where))[:_PLACES]
    calls = len(hits) / steps
    return Finding(
        rule.name,
        rule.title,
        context.trace.rank,
        time / steps,
        time / span,
        calls,
        ranked,
        rule.change,
        rule.command,
    )


def _new(time: Intervals, claimed: Intervals, within: Intervals) -> float:
    """Return the time in steps that no earlier rule has found."""
    left = minus(time, claimed)
    return sum(length(clip(left, start, end)) for start, end in within)


def _cause(context: Context, hit: Hit) -> Cause:
    place = None if hit.cause is None else context.host.place(hit.cause)
    if place:
        return Cause(f"{place} {hit.label}".rstrip(), 0.0, 0.0, place.file, place.line)
    name = hit.label or ("" if hit.cause is None else context.host.events[hit.cause].name)
    return Cause(name or "(unknown)", 0.0, 0.0)


def sections(findings: list[Finding]) -> list[Section]:
    """Return the advice as a report."""
    if not findings:
        return [Section("Advice", ["finding"], note="No rule found anything.")]
    return [_section(number, finding) for number, finding in enumerate(findings, 1)]


def _section(number: int, finding: Finding) -> Section:
    rank = f", rank {finding.rank}" if finding.rank else ""
    stake = f"{format_time(finding.time)} per step, {format_share(finding.share, 1.0)}{rank}"
    section = Section(f"{number}. {finding.title}: {stake}", ["where", "time per step", "calls per step"])
    for cause in finding.causes:
        section.rows.append([cause.where, format_time(cause.time), f"{cause.calls:.1f}"])
    section.note = finding.change + (f" Or: {finding.command}" if finding.command else "")
    return section
