"""The report of a run: report.json, junit.xml and report.html."""

import json
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from isthmus.conformance.results import CRASHED, FAILED, KNOWN, NOT_CLAIMED, NOT_RUN, STATUSES
from isthmus_common.files import make_folder, write_file

_FORMAT = 2
# XML 1.0 forbids these characters; messages contain text of kernels.
_FORBIDDEN = {code: "?" for code in (*range(32), 0xFFFE, 0xFFFF) if chr(code) not in "\t\n\r"}


class ReportError(ValueError):
    """A report cannot be read; the message is one line."""


def write(folder: Path, run: dict[str, Any], mutation: Path | None = None) -> None:
    """Write the three files.

    Args:
        folder: created if absent.
        run: result of :meth:`isthmus.conformance.run.Run.to_json` or of :func:`read`.
        mutation: mutation.json with the suite's mutation score, shown in the page.

    Raises:
        ReportError: the mutation file cannot be read, or the folder cannot be written.
    """
    from isthmus.conformance.page import render  # slow to import, and needed only here

    score = read_score(mutation) if mutation else run.get("mutation")
    data = {**run, "format": _FORMAT, "mutation": score}
    make(folder, "--output")
    try:
        write_file(folder / "report.json", [_lines(data).encode()])
        write_file(folder / "junit.xml", [_junit(data)])
        write_file(folder / "report.html", [render(data).encode()])
    except OSError as error:
        raise ReportError(f"{folder}: {error.strerror}") from None


def _lines(data: dict[str, Any]) -> str:
    """Return the JSON of a report with a line for each result; an indented one takes seconds to write."""
    head = json.dumps({key: value for key, value in data.items() if key != "results"}).removesuffix("}")
    results = ",\n".join(map(json.dumps, data["results"]))
    return f'{head}, "results": [\n{results}\n]}}\n'


def make(folder: Path, option: str) -> None:
    """Make the folder that an option names. Raises ReportError."""
    try:
        make_folder(folder)
    except OSError as error:
        raise ReportError(f"{option} {folder}: {error.strerror}; name a folder that can be made") from None


def read(folder: Path) -> dict[str, Any]:
    """Read the ``report.json`` of a folder. Raises ReportError."""
    data = _json(folder / "report.json")
    if data.get("format") != _FORMAT or "results" not in data:
        raise ReportError(
            f"{folder / 'report.json'}: not a report of this version; run `isthmus conform run` again"
        )
    return data


def read_score(file: Path) -> dict[str, Any]:
    """Read a mutation.json. Raises ReportError."""
    return _json(file, "give a mutation.json")


def _json(file: Path, remedy: str = "`isthmus conform run --output` writes a report") -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except OSError as error:
        raise ReportError(f"{file}: {error.strerror}; {remedy}") from None
    except ValueError as error:
        raise ReportError(f"{file}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ReportError(f"{file}: not a JSON object; {remedy}")
    return found


def _junit(data: dict[str, Any]) -> bytes:
    """Return JUnit XML with a test suite per family and a test case per case."""
    root = ElementTree.Element("testsuites", name=f"isthmus conform {data['driver']}")
    for family in sorted({row["family"] for row in data["results"]}):
        rows = [row for row in data["results"] if row["family"] == family]
        counts = Counter(row["status"] for row in rows)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=family,
            tests=str(len(rows)),
            failures=str(counts[FAILED]),
            errors=str(counts[CRASHED] + counts[NOT_RUN]),
            skipped=str(counts[KNOWN] + counts[NOT_CLAIMED]),
            time=f"{sum(row['seconds'] for row in rows):.3f}",
        )
        for row in rows:
            _add_case(suite, row)
    for line in data["stale"]:
        suite = ElementTree.SubElement(root, "testsuite", name="known failures", tests="1", failures="1")
        case = ElementTree.SubElement(suite, "testcase", classname="known failures", name=_clean_text(line))
        ElementTree.SubElement(case, "failure", message=_clean_text(line))
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _add_case(suite: ElementTree.Element, row: dict[str, Any]) -> None:
    assert row["status"] in STATUSES
    name = " ".join(filter(None, (row["library"], row["dtype"], row["case"])))
    case = ElementTree.SubElement(
        suite, "testcase", classname=row["operator"], name=_clean_text(name), time=f"{row['seconds']:.4f}"
    )
    tags = {FAILED: "failure", CRASHED: "error", NOT_RUN: "error", KNOWN: "skipped", NOT_CLAIMED: "skipped"}
    if tag := tags.get(row["status"]):
        about = ElementTree.SubElement(case, tag, message=_clean_text(row["message"]))
        about.text = _clean_text(row["command"]) or None


def _clean_text(text: str) -> str:
    return text.translate(_FORBIDDEN)
