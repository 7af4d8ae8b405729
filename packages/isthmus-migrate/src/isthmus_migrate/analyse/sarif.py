"""SARIF 2.1.0 reports, for code hosts and editors.

Source: OASIS Static Analysis Results Interchange Format 2.1.0, sections 3.13 to 3.30.
"""

import json
import re
from typing import Any
from urllib.parse import quote

import isthmus_common
from isthmus_migrate.analyse.codes import title
from isthmus_migrate.analyse.engine import Report
from isthmus_migrate.source.findings import Finding, Severity

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_CELL = re.compile(r"(?P<file>.*\.ipynb)#cell(?P<number>\d+)")
_LEVELS = {
    Severity.MANUAL: "error",
    Severity.REVIEW: "warning",
    Severity.AUTOMATIC: "note",
    Severity.ADVICE: "note",
    Severity.NONE: "none",
}


def as_sarif(report: Report) -> str:
    """Return the report as one run; files are relative to the analysed folder."""
    codes = sorted({finding.code for finding in report.findings})
    rules = [{"id": code, "shortDescription": {"text": title(code)}} for code in codes]
    driver = {"name": "isthmus migrate analyse", "version": isthmus_common.__version__, "rules": rules}
    order = {code: index for index, code in enumerate(codes)}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, order) for finding in report.findings],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _result(finding: Finding, order: dict[str, int]) -> dict[str, Any]:
    kind = {"kind": "notApplicable"} if finding.severity is Severity.NONE else {}
    evidence = {"evidence": finding.evidence} if finding.evidence else {}
    about = {"severity": finding.severity.value, "end": finding.end, "subject": finding.subject}
    return {
        "ruleId": finding.code,
        "ruleIndex": order[finding.code],
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.subject} {finding.message}: {finding.advice}"},
        "locations": [_location(finding)],
        "properties": {**about, **evidence},
        **kind,
    }


def _location(finding: Finding) -> dict[str, Any]:
    """Return the location; a notebook's cell is a logical location, since its lines are not lines of the file."""
    if cell := _CELL.fullmatch(finding.path):
        name = f"cell {cell['number']}, line {finding.line}"
        return {
            "physicalLocation": {"artifactLocation": {"uri": quote(cell["file"])}},
            "logicalLocations": [{"fullyQualifiedName": name}],
        }
    place: dict[str, Any] = {"artifactLocation": {"uri": quote(finding.path)}}
    if finding.line:
        place["region"] = {
            "startLine": finding.line,
            "endLine": finding.end_line,
            "startColumn": finding.column,
        }
    return {"physicalLocation": place}
