"""Advice on a profile: rules applied to traces, each with lines of the user's code, time at stake and the change."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from isthmus_diagnostics.profile.detectors import DETECTORS, Context, Hit
from isthmus_diagnostics.profile.intervals import Intervals, clip, length, minus, union
from isthmus_diagnostics.profile.report import Section, format_share, format_time

_RULES = Path(__file__).parent / "rules"
_PLACES = 5  # most places of a finding


@dataclass(frozen=True, eq=False)
class Rule:
    """A file of ``rules/``.

    Attributes:
        name: name of the file.
        order: rules are applied in this order; time that one has found is not counted again by a later one.
        title: what is wrong.
        detector: function of ``detectors.py``, called with ``parameters``.
        share: least time at stake, as a share of the steps without the stalls of other rules.
        per_step: least occurrences in a step.
        stall: nothing else goes on in what it finds.
        typical: the share is that of the median step.
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
    typical: bool = False
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
    """A finding of a rule in the trace of a rank; times in microseconds of a step."""

    rule: str
    title: str
    rank: str
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


def advise(contexts: list[Context]) -> list[Finding]:
    """Apply the rules to all ranks, and return for each rule the rank with most time at stake, most time first."""
    worst: dict[str, Finding] = {}
    for context in contexts:
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
    time = minus(union(*(hit.time for hit in hits)), claimed)
    if not hits or len(hits) < rule.per_step * steps or not _matters(rule, context, time, stalls):
        return None
    causes: dict[str, Cause] = {}
    times: dict[str, list[Intervals]] = defaultdict(list)
    for hit in hits:
        cause = _cause(context, hit)
        causes.setdefault(cause.where, cause).calls += 1 / steps
        times[cause.where].append(hit.time)
    for where, cause in causes.items():
        cause.time = sum(_per_step(context, minus(union(*times[where]), claimed))) / steps
    ranked = sorted(causes.values(), key=lambda cause: (-cause.time, cause.where))[:_PLACES]
    whole = sum(_per_step(context, time))
    span = sum(step.end - step.start for step in context.steps)
    calls = len(hits) / steps
    return Finding(
        rule.name,
        rule.title,
        context.trace.name,
        whole / steps,
        whole / span,
        calls,
        ranked,
        rule.change,
        rule.command,
    )


def _matters(rule: Rule, context: Context, time: Intervals, stalls: Intervals) -> bool:
    """Return whether a time reaches the rule's share of the steps."""
    times = _per_step(context, time)
    stalled = _per_step(context, stalls)
    spans = [step.end - step.start - stall for step, stall in zip(context.steps, stalled, strict=True)]
    shares = [part / span if span > 0 else 0.0 for part, span in zip(times, spans, strict=True)]
    share = median(shares) if rule.typical else sum(times) / max(sum(spans), 1e-9)
    return share >= rule.share


def _per_step(context: Context, time: Intervals) -> list[float]:
    return [length(clip(time, step.start, step.end)) for step in context.steps]


def _cause(context: Context, hit: Hit) -> Cause:
    place = None if hit.cause is None else context.host.place(hit.cause)
    if place:
        return Cause(f"{place} {hit.label}".rstrip(), 0.0, 0.0, place.file, place.line)
    name = hit.label or ("" if hit.cause is None else context.host.events[hit.cause].name)
    return Cause(name or "(unknown)", 0.0, 0.0)


def sections(findings: list[Finding]) -> list[Section]:
    """Return the advice as a report."""
    if not findings:
        return [Section("Advice", ["where"], note="No rule found anything.")]
    return [_section(number, finding) for number, finding in enumerate(findings, 1)]


def _section(number: int, finding: Finding) -> Section:
    rank = "" if finding.rank == "0" else f", rank {finding.rank}"
    section = Section(f"{number}. {finding.title}", ["where", "time per step", "calls per step"])
    section.stake = f"{format_time(finding.time)} per step, {format_share(finding.share, 1.0)}{rank}"
    for cause in finding.causes:
        section.rows.append([cause.where, format_time(cause.time), f"{cause.calls:.1f}"])
    section.note = finding.change
    section.command = finding.command
    return section
