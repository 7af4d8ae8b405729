"""The log of a conversion: printed, grouped by rule and file, and as JSON."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from isthmus_common.text import count
from isthmus_migrate.convert.project import Converted
from isthmus_migrate.rules.cuda_only_file import verdict
from isthmus_migrate.rules.registry import all_rules
from isthmus_migrate.source import mps, versions
from isthmus_migrate.source.findings import LEFT, Finding, Severity

_VERSION = 2


def print_log(converted: Sequence[Converted], verb: str) -> None:
    """Print the changes, what is left with reason and remedy, the counts and a verdict, to standard error.

    Args:
        converted: results of the files.
        verb: "changed" or "to change".
    """
    lines = [*_changes(converted), *_list_left(converted), f"isthmus: {summary(converted, verb)}"]
    if said := verdict(finding for each in converted for finding in each.findings):
        lines.append(f"isthmus: {said}")
    for line in lines:
        print(line, file=sys.stderr)


def summary(converted: Sequence[Converted], verb: str) -> str:
    """Return the counts, and the oldest version of PyTorch that runs the result, in one line."""
    counts = Counter(finding.severity for each in converted for finding in each.findings)
    changes = sum(len(each.changes) for each in converted)
    left = sum(counts[each] for each in LEFT)
    said = (
        f"{count(sum(bool(each.changes) for each in converted), 'file')} {verb}, {count(changes, 'change')}, "
    )
    said += f"{count(left, 'place')} left"
    if left:
        said += f" ({counts[Severity.MANUAL]} manual, {counts[Severity.REVIEW]} to review)"
    torch = oldest_version(converted)
    return f"{said}; needs PyTorch {versions.needed_version(torch)}" if torch else said


def oldest_version(converted: Sequence[Converted]) -> tuple[int, ...]:
    """Return the oldest version of PyTorch that has what the changes use; () if any has."""
    return max((each.torch for each in converted), default=())


def as_json(converted: Sequence[Converted], target: str) -> bytes:
    """Return every change with its evidence, and every place that is left, as JSON."""
    findings = [finding for each in converted for finding in each.findings]
    document = {
        "version": _VERSION,
        "target": target,
        "torch": versions.format_version(oldest_version(converted)),
        "changes": [each.as_dict() for each in findings if each.edits],
        "left": [each.as_dict() for each in findings if each.severity in LEFT],
        "not_applicable": [each.as_dict() for each in findings if each.severity is Severity.NONE],
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def _changes(converted: Sequence[Converted]) -> Iterator[str]:
    """Yield a line per rule and, below, a line per file with the lines of its changes, and those that MPS refuses."""
    for code, found in _by_rule([change for each in converted for change in each.changes]):
        places: defaultdict[str, list[str]] = defaultdict(list)
        for each in found:
            places[each.path].append(f"{each.line}{' (not on MPS)' if mps.LACKS in each.advice else ''}")
        yield f"{_name_code(code)}: {count(len(found), 'change')} in {count(len(places), 'file')}"
        for path, lines in places.items():
            yield f"  {path}:{', '.join(dict.fromkeys(lines))}"


def _list_left(converted: Sequence[Converted]) -> Iterator[str]:
    """Yield a line per rule and, below, a line per place with the reason and the remedy."""
    left = [each for result in converted for each in result.findings if each.severity in LEFT]
    for code, found in _by_rule(left):
        yield f"{_name_code(code)}: {count(len(found), 'place')} left"
        for each in found:
            place = f"{each.path}:{each.line}" if each.line else each.path
            yield f"  {place}: {each.severity.value}: {each.subject} {each.message}; {each.advice}"


def _by_rule(findings: Sequence[Finding]) -> Iterator[tuple[str, list[Finding]]]:
    found: defaultdict[str, list[Finding]] = defaultdict(list)
    for each in findings:
        found[each.code].append(each)
    yield from sorted(found.items())


def _name_code(code: str) -> str:
    """Return a code with the name of its rule, or with its title."""
    from isthmus_migrate.analyse.codes import title

    name = next((rule.name for rule in all_rules() if rule.code == code), "")
    return f"{code} {name or title(code)}"
