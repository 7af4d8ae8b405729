"""CSV reports: one table of all findings, and files in the format of the vendor's tool."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from isthmus_common.files import make_folder, write_file
from isthmus_migrate.analyse.engine import Report
from isthmus_migrate.source.findings import Finding, Severity

# Characters that start a formula in spreadsheets, also full-width.
_FORMULA = tuple("=+-@%\t\uff1d\uff0b\uff0d\uff20\uff05")
_HEAD = (
    "Code",
    "Severity",
    "File",
    "Start Line",
    "End Line",
    "Column",
    "Subject",
    "Message",
    "Advice",
    "End",
    "Evidence",
)
_API_HEAD = ("File", "Start Line", "End Line", "OP", "Tips")
_LIBRARY_HEAD = ("Torch API", "Affected 3rd-party API")
_SHAPE_HEAD = (
    "Function Name",
    "File Path",
    "Line Number",
    "Call Stack",
    "Input Shape Range",
    "Output Shape Range",
)


def as_csv(report: Report) -> str:
    """Return every finding with all its fields."""
    return table(
        _HEAD,
        (
            (f.code, f.severity.value, f.path, f.line, f.end_line, f.column)
            + (f.subject, f.message, f.advice, f.end, f.evidence)
            for f in report.findings
        ),
    )


def write_folder(folder: Path, findings: Sequence[Finding]) -> None:
    """Write files with the vendor's names and headers; empty ones have only a header.

    Raises:
        OSError: the folder is not writable.
    """
    make_folder(folder)
    for name, text in vendor_files(findings).items():
        write_file(folder / name, text.encode())


def vendor_files(findings: Sequence[Finding]) -> dict[str, str]:
    """Return texts by file name. Groups of codes are the vendor's modes: APIs, libraries, dynamic shapes."""
    unsupported = [
        f for f in findings if f.severity is Severity.MANUAL and _is_in_group(f, "IM1 IM2 IM4 IM5")
    ]
    libraries = [f for f in findings if _is_in_group(f, "IM3 IM4")]
    needed = [
        f
        for f in findings
        if f.severity in {Severity.AUTOMATIC, Severity.REVIEW} and _is_in_group(f, "IM1 IM2")
    ]
    shapes = ((f.subject, f.path, f.line, "", "", "") for f in findings if _is_in_group(f, "IM6"))
    return {
        "unsupported_api.csv": _apis(unsupported),
        "unknown_api.csv": _apis(f for f in findings if f.code == "IM199"),
        "cuda_op_list.csv": table(
            ("File", "Api"), ((f.path, f.subject) for f in findings if _is_in_group(f, "IM1"))
        ),
        "api_precision_advice.csv": _apis(f for f in findings if _is_in_group(f, "IM8")),
        "api_performance_advice.csv": _apis(f for f in findings if _is_in_group(f, "IM7")),
        "framework_unsupported_op.csv": _pairs(_LIBRARY_HEAD, unsupported),
        "migration_needed_op.csv": _pairs(_LIBRARY_HEAD, needed),
        "unknown_op.csv": _pairs(_LIBRARY_HEAD, [f for f in findings if f.code == "IM199"]),
        "cuda_op.csv": _pairs(
            ("OP Name", "Affected 3rd-party API"), [f for f in findings if _is_in_group(f, "IM4")]
        ),
        "full_unsupported_results.csv": table(
            ("File", "3rd-party API", "Message"), ((f.path, f.subject, f.message) for f in libraries)
        ),
        "msft_dynamic_shape_analysis_report.csv": table(_SHAPE_HEAD, shapes),
    }


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return rows as CSV, each cell safe in a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([list(head), *([_escape_formula(cell) for cell in row] for row in rows)])
    return text.getvalue()


def _apis(findings: Iterable[Finding]) -> str:
    return table(_API_HEAD, ((f.path, f.line, f.end_line, f.subject, f.advice) for f in findings))


def _pairs(head: Iterable[str], findings: Iterable[Finding]) -> str:
    return table(head, sorted({(f.subject, f.path) for f in findings}))


def _is_in_group(finding: Finding, groups: str) -> bool:
    return finding.code[:3] in groups.split()


def _escape_formula(cell: object) -> object:
    """Return a cell in one line, prefixed by a space if it would be a formula, as in the vendor's tool."""
    if not isinstance(cell, str):
        return cell
    text = re.sub(r"[\r\n]+", " ", cell)
    return f" {text}" if text.startswith(_FORMULA) else text
