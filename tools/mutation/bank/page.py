"""The page of silent errors, in English and Chinese: by class, condition and backend, and report by report."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from isthmus_common.files import write_file
from tools.mutation.bank import REPORTS, Report
from tools.mutation.mutant import CLASSES
from tools.repository import ROOT

Words: TypeAlias = dict[str, Any]  # texts in a language
WORDS: dict[str, Words] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
_DOCS = ROOT / "docs"


class _Row(NamedTuple):
    """A report, and whether the suite detects its mistake in one of the operators; None if it was not tried."""

    report: Report
    is_detected: bool | None


def write_pages(file: Path, result: dict[str, Any]) -> None:
    """Write the English page, and the Chinese one at the same place in docs/zh."""
    for page, words in ((file, WORDS["en"]), (chinese_page(file), WORDS["zh"])):
        write_file(page, [text(result, words).encode()])


def chinese_page(file: Path) -> Path:
    """Return the place of the Chinese page of an English one.

    Raises:
        ValueError: the English one is not in docs.
    """
    place = file.resolve()
    if not place.is_relative_to(_DOCS):
        raise ValueError(
            f"--page {file}: expected a file in {_DOCS}; the Chinese page goes to the same place in zh"
        )
    return _DOCS / "zh" / place.relative_to(_DOCS)


def text(result: dict[str, Any], words: Words) -> str:
    """Return the page of a result in a language."""
    caught = {
        each["thread"]: any(r["status"] == "caught" for r in each["results"]) for each in result["reports"]
    }
    rows = [_Row(report, caught.get(report.thread)) for report in REPORTS]
    counts = {"reports": len(rows), "detected": _detected(rows), "opset": result["opset"][:12]}
    parts = [words["head"].format(**counts), *_classes(rows, words), *_conditions(rows, words)]
    parts += [*_backends(rows, words), *_reports(rows, words)]
    return "\n".join(parts).rstrip() + "\n"


def _detected(rows: Iterable[_Row]) -> int:
    return sum(bool(row.is_detected) for row in rows)


def _groups(rows: Iterable[_Row], key: Callable[[Report], str]) -> list[tuple[str, list[_Row]]]:
    """Return the rows by a key, the largest groups first."""
    groups: dict[str, list[_Row]] = {}
    for row in rows:
        groups.setdefault(key(row.report), []).append(row)
    return sorted(groups.items(), key=lambda group: (-len(group[1]), group[0].lower()))


def _classes(rows: list[_Row], words: Words) -> Iterator[str]:
    yield words["by_class"]
    for kind in CLASSES:
        chosen = [row for row in rows if row.report.kind == kind]
        name, meaning = words["classes"][kind]
        anchor = name.lower().replace(" ", "-")
        yield _line(f"[{name}](#{anchor})", meaning, len(chosen), _detected(chosen))
    yield _line(f"**{words['all']}**", "", len(rows), _detected(rows)) + "\n"


def _conditions(rows: list[_Row], words: Words) -> Iterator[str]:
    yield words["by_condition"]
    for condition, chosen in _groups(rows, lambda report: report.condition):
        operators = Counter(name for row in chosen for name in _operators(row.report))
        often = ", ".join(f"`{name}`" for name, _ in operators.most_common(4))
        name, check = words["conditions"][condition]
        yield _line(name, check, often, len(chosen), _detected(chosen))
    yield ""


def _backends(rows: list[_Row], words: Words) -> Iterator[str]:
    yield words["by_backend"]
    for backend, chosen in _groups(rows, lambda report: report.backend):
        kinds = Counter(row.report.kind for row in chosen).most_common(3)
        often = ", ".join(f"{words['classes'][kind][0].lower()} ({count})" for kind, count in kinds)
        yield _line(backend, often, len(chosen), _detected(chosen))
    yield ""


def _reports(rows: list[_Row], words: Words) -> Iterator[str]:
    outcome = {True: words["yes"], False: words["no"], None: "-"}
    for kind in CLASSES:
        yield f"## {words['classes'][kind][0]}\n\n{words['reports']}"
        for report, is_detected in rows:
            if report.kind == kind:
                operators = " ".join(f"`{name}`" for name in _operators(report))
                condition, _ = words["conditions"][report.condition]
                what = report.text.replace("|", "\\|")
                cells = (_link(report.thread), report.backend, operators, condition, what)
                yield _line(*cells, outcome[is_detected])
        yield ""


def _operators(report: Report) -> list[str]:
    return [name.partition("::")[2] for name in report.operators]


def _line(*cells: Any) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _link(thread: str) -> str:
    return f"[{thread}](https://github.com/{thread.replace('#', '/issues/')})"
