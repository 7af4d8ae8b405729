"""Reports: lines, JSON, SARIF, CSV, HTML; severities and exit codes."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from isthmus_migrate.analyse import csv_report, html_report, report, sarif, table
from isthmus_migrate.analyse.engine import Report
from isthmus_migrate.source.findings import Finding, Severity

FINDINGS = [
    Finding("IM001", Severity.MANUAL, "b&ä.py", 0, 0, "b&ä.py", "does not parse", "fix it"),
    Finding(
        "IM112", Severity.AUTOMATIC, "a b.py", 3, 4, "torch.cuda.synchronize", "is CUDA's", "<i>x</i>", 5
    ),
    Finding("IM199", Severity.REVIEW, "n.ipynb#cell2", 1, 1, "torch.cuda.x", "is CUDA's", "=cmd()", 1),
    Finding("IM301", Severity.MANUAL, "a.py", 1, 1, "@apex", "runs on GPUs", "+1", 1),
    Finding("IM601", Severity.ADVICE, "a.py", 9, 9, "x.nonzero", "depends", "do not", 1),
    Finding("IM702", Severity.ADVICE, "a.py", 10, 10, "DataLoader", "waits", "pin", 1),
    Finding("IM802", Severity.ADVICE, "a.py", 11, 11, "torch.float64", "is lacking", "no", 1),
    Finding("IM102", Severity.NONE, "a.py", 12, 12, '"cuda"', "is a word", "stays", 1, (), "recorded run"),
]
REPORT = Report(FINDINGS, 4, 99)

# The parts of the SARIF 2.1.0 schema that are written, with nothing else allowed.
TEXT = {"type": str}
MESSAGE = {"type": dict, "required": {"text": TEXT}}
NUMBER = {"type": int, "least": 1}
URI = {"type": str, "pattern": r"[A-Za-z0-9%._~/-]+"}
LOCATION = {
    "type": dict,
    "required": {
        "physicalLocation": {
            "type": dict,
            "required": {"artifactLocation": {"type": dict, "required": {"uri": URI}}},
            "optional": {
                "region": {
                    "type": dict,
                    "required": {"startLine": NUMBER, "endLine": NUMBER, "startColumn": NUMBER},
                }
            },
        }
    },
    "optional": {
        "logicalLocations": {"type": list, "items": {"type": dict, "required": {"fullyQualifiedName": TEXT}}}
    },
}
RESULT = {
    "type": dict,
    "required": {
        "ruleId": TEXT,
        "ruleIndex": {"type": int, "least": 0},
        "level": {"type": str, "pattern": "error|warning|note|none"},
        "message": MESSAGE,
        "locations": {"type": list, "items": LOCATION},
        "properties": {
            "type": dict,
            "required": {"severity": TEXT, "end": TEXT, "subject": TEXT},
            "optional": {"evidence": TEXT},
        },
    },
    "optional": {"kind": {"type": str, "pattern": "notApplicable"}},
}
RULE = {"type": dict, "required": {"id": TEXT, "shortDescription": MESSAGE}}
DRIVER = {"type": dict, "required": {"name": TEXT, "version": TEXT, "rules": {"type": list, "items": RULE}}}
RUN = {
    "type": dict,
    "required": {
        "tool": {"type": dict, "required": {"driver": DRIVER}},
        "columnKind": {"type": str, "pattern": "utf16CodeUnits|unicodeCodePoints"},
        "results": {"type": list, "items": RESULT},
    },
}
SARIF = {
    "type": dict,
    "required": {
        "$schema": {"type": str, "pattern": r"https://.*/sarif-schema-2\.1\.0\.json"},
        "version": {"type": str, "pattern": r"2\.1\.0"},
        "runs": {"type": list, "items": RUN},
    },
}


def mistakes(value: Any, schema: dict[str, Any], at: str = "$") -> list[str]:
    if type(value) is not schema["type"]:
        return [f"{at}: {type(value).__name__}"]
    found = []
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        found.append(f"{at}: {value}")
    if value < schema.get("least", value) if isinstance(value, int) else False:
        found.append(f"{at}: {value}")
    for index, item in enumerate(value if "items" in schema else ()):
        found += mistakes(item, schema["items"], f"{at}[{index}]")
    if "required" in schema:
        allowed = {**schema["required"], **schema.get("optional", {})}
        found += [f"{at}: no {key}" for key in schema["required"].keys() - value.keys()]
        found += [f"{at}: {key} is not known" for key in value.keys() - allowed.keys()]
        for key in value.keys() & allowed.keys():
            found += mistakes(value[key], allowed[key], f"{at}.{key}")
    return found


def test_the_schema_notices_mistakes():
    assert mistakes({}, SARIF)
    assert mistakes({"$schema": "x", "version": "2.0", "runs": [{}]}, SARIF)
    assert mistakes({"startLine": 0, "endLine": 1, "startColumn": 1}, LOCATION)


def test_sarif():
    made = json.loads(sarif.as_sarif(REPORT))
    assert not mistakes(made, SARIF)
    (run,) = made["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert [rules[result["ruleIndex"]] for result in run["results"]] == [f.code for f in FINDINGS]
    assert [result["level"] for result in run["results"]] == ["error", "note", "warning", "error"] + [
        "note"
    ] * 3 + ["none"]
    assert [result.get("kind") for result in run["results"]] == [None] * 7 + ["notApplicable"]
    assert run["results"][7]["properties"]["evidence"] == "recorded run"
    whole, part, cell = (result["locations"][0] for result in run["results"][:3])
    assert whole == {"physicalLocation": {"artifactLocation": {"uri": "b%26%C3%A4.py"}}}
    assert part["physicalLocation"]["region"] == {"startLine": 3, "endLine": 4, "startColumn": 5}
    assert cell["physicalLocation"]["artifactLocation"]["uri"] == "n.ipynb"
    assert cell["logicalLocations"] == [{"fullyQualifiedName": "cell 2, line 1"}]


def test_json():
    made = json.loads(report.as_json(REPORT))
    assert (made["files"], made["lines"], made["not_applicable"]) == (4, 99, 1)
    ends = [each.pop("end") for each in made["findings"]]
    assert ends == ["left", "changed", "left", "left", "advice", "advice", "advice", "not applicable"]
    assert [
        Finding(**{**each, "severity": Severity(each["severity"])}) for each in made["findings"]
    ] == FINDINGS


def rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_csv_has_every_field_and_no_formula():
    made = rows(csv_report.as_csv(REPORT))
    assert made[0][:4] == ["Code", "Severity", "File", "Start Line"]
    assert len(made) == len(FINDINGS) + 1
    assert made[3][-3:] == [" =cmd()", "left", ""]
    assert made[4][-5:] == [" @apex", "runs on GPUs", " +1", "left", ""]
    assert made[8][-2:] == ["not applicable", "recorded run"]


@pytest.mark.parametrize("start", [*"=+-@%\t", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\uff05"])
def test_a_cell_that_is_a_formula(start: str):
    assert rows(csv_report.table(["a"], [[f"{start}1"]]))[1] == [f" {start}1"]
    assert rows(csv_report.table(["a"], [[f"a\r\n{start}1"]]))[1] == [f"a {start}1"]


def test_files_of_the_vendors_tool(tmp_path: Path):
    csv_report.write_folder(tmp_path / "new" / "reports", FINDINGS)
    written = {path.name: path.read_text() for path in (tmp_path / "new" / "reports").iterdir()}
    heads = {name: text.splitlines()[0] for name, text in written.items()}
    api = "File,Start Line,End Line,OP,Tips"
    library = "Torch API,Affected 3rd-party API"
    assert heads == {
        "unsupported_api.csv": api,
        "unknown_api.csv": api,
        "api_precision_advice.csv": api,
        "api_performance_advice.csv": api,
        "cuda_op_list.csv": "File,Api",
        "framework_unsupported_op.csv": library,
        "migration_needed_op.csv": library,
        "unknown_op.csv": library,
        "cuda_op.csv": "OP Name,Affected 3rd-party API",
        "full_unsupported_results.csv": "File,3rd-party API,Message",
        "msft_dynamic_shape_analysis_report.csv": "Function Name,File Path,Line Number,Call Stack,"
        "Input Shape Range,Output Shape Range",
    }
    assert rows(written["unknown_api.csv"])[1] == ["n.ipynb#cell2", "1", "1", "torch.cuda.x", " =cmd()"]
    assert rows(written["cuda_op_list.csv"])[1] == ["a b.py", "torch.cuda.synchronize"]
    assert rows(written["api_performance_advice.csv"])[1] == ["a.py", "10", "10", "DataLoader", "pin"]
    assert rows(written["full_unsupported_results.csv"])[1] == ["a.py", " @apex", "runs on GPUs"]
    assert (tmp_path / "new" / "reports").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "new" / "reports" / "unknown_api.csv").stat().st_mode & 0o777 == 0o640


class Page(HTMLParser):
    """Collect the content of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.opened.append(tag)
        self.links += [value or "" for name, value in attributes if name in {"src", "href", "action"}]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_is_one_page_that_loads_nothing():
    text = html_report.as_page(REPORT)
    page = Page(text)
    assert not page.links
    assert not {"script", "link", "iframe", "img"} & set(page.opened)
    assert "url(" not in text
    assert "@" not in re.sub("@apex", "", page.text)
    for finding in FINDINGS:
        assert finding.path in page.text
        assert finding.advice in page.text  # escaped, so that <i> is text
    assert page.opened.count("tr") == len(FINDINGS)


def test_lines():
    assert table.line(FINDINGS[1]) == (
        "a b.py:3:5: IM112 automatic: torch.cuda.synchronize is CUDA's; <i>x</i>"
    )
    assert table.line(FINDINGS[0]) == "b&ä.py: IM001 manual: b&ä.py does not parse; fix it"
    assert report.as_lines(REPORT).splitlines()[-1] == (
        "4 files, 99 lines: 1 to change, 3 left (2 manual, 1 to review), 3 advice, 1 not applicable"
    )
    assert report.as_lines(Report([], 1, 1, 2)) == "1 file, 1 line: 0 to change, 0 left, 2 not applicable\n"


def test_a_terminal_gets_one_row_for_equal_findings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    same = [FINDINGS[1]._replace(line=line, advice="[b]x") for line in range(1, 6)]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    table.print_report(Report(same, 1, 9))
    said = capsys.readouterr().out
    assert said.count("IM112") == 1
    assert "and 2 more" in said
    assert "[b]x" in said


@pytest.mark.parametrize(
    ("fail_on", "select", "ignore", "failed"),
    [
        ("manual", (), (), True),
        ("manual", (), ("IM0", "IM3"), False),
        ("review", (), ("IM0", "IM3"), True),
        ("automatic", ("IM112",), (), True),
        ("automatic", ("IM6", "IM7"), (), False),
        ("never", (), (), False),
    ],
)
def test_severity_decides(
    fail_on: str, select: tuple[str, ...], ignore: tuple[str, ...], failed: bool, tmp_path: Path
):
    request = report.Request(output=tmp_path / "out", select=select, ignore=ignore, fail_on=fail_on)
    assert report.write(REPORT, request) is failed


def test_selection(tmp_path: Path):
    report.write(
        REPORT, report.Request(format="json", output=tmp_path / "o", select=("IM1", "IM3"), ignore=("IM199",))
    )
    assert [each["code"] for each in json.loads((tmp_path / "o").read_text())["findings"]] == [
        "IM112",
        "IM301",
    ]
    assert (tmp_path / "o").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(("listed", "number"), [(False, 7), (True, 8)])
def test_what_needs_no_change_is_listed_if_asked(listed: bool, number: int, tmp_path: Path):
    report.write(REPORT, report.Request(format="json", output=tmp_path / "o", all=listed))
    made = json.loads((tmp_path / "o").read_text())
    assert (len(made["findings"]), made["not_applicable"]) == (number, 1)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (report.Request(), ""),
        (report.Request(format="pdf"), "--format pdf: choose from table, json, sarif, csv, html"),
        (
            report.Request(select=("IM999",)),
            "IM999: unknown group; expected one of IM0, IM1, IM2, IM3, IM4, IM5, IM6, IM7, IM8",
        ),
        (report.Request(ignore=("E5",)), "E5: not a code; expected one such as IM101, or IM1 for a group"),
    ],
)
def test_mistakes_of_the_user(request_: report.Request, said: str):
    assert request_.mistake() == said
