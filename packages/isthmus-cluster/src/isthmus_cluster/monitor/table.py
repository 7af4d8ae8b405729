"""Reports as rows of a table, and as lines of a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from isthmus_cluster.errors import ClusterError
from isthmus_cluster.monitor.card import LOST, OK, Card, Process, Report
from isthmus_cluster.monitor.reports import WAITING
from isthmus_common.files import make_file
from isthmus_common.text import count

HEAD = "host|card|name|health|power (W)|temp (°C)|util (%)|memory (MiB)|processes (MiB)".split("|")
COLUMNS = (
    "time host card name health power_w temperature_c utilization memory_used memory_total processes reason"
).split()
_UNKNOWN = "-"
_MIB = 1 << 20


def rows(reports: Mapping[str, Report], separator: str = ", ") -> list[tuple[str, ...]]:
    """Return a row for each card, and one for each host that does not answer, which stands for its cards.

    Args:
        reports: by host.
        separator: between processes.
    """
    found = []
    for report in reports.values():
        if report.error:
            health = report.error if report.error == WAITING else f"{LOST}: {report.error}"
            found.append((report.host, *[_UNKNOWN] * 2, health, *[_UNKNOWN] * 5))
        else:
            found += [_row(report.host, card, separator) for card in report.cards]
    return found


def style(row: Sequence[str]) -> str:
    """Return the Rich style of a row."""
    health = row[HEAD.index("health")]
    return "" if health == OK else "bold red" if health.startswith(LOST) else "yellow"


def summary(reports: Mapping[str, Report]) -> str:
    """Return one line: numbers of hosts, cards, and problems."""
    answering = [report for report in reports.values() if not report.error]
    cards = [card for report in answering for card in report.cards]
    ill = sum(card.health != OK for card in cards)
    parts = [f"{len(answering)} of {count(len(reports), 'host')}", count(len(cards), "card"), f"{ill} not OK"]
    return " · ".join(parts if ill else parts[:2])


def _row(host: str, card: Card, separator: str) -> tuple[str, ...]:
    utilization = None if card.utilization is None else 100 * card.utilization
    used, total = _mib(card.memory_used), _mib(card.memory_total)
    return (
        host,
        str(card.index),
        card.name or _UNKNOWN,
        f"{card.health}: {card.reason}" if card.reason else card.health,
        _figure(card.power_w),
        _figure(card.temperature_c),
        _figure(utilization),
        f"{used} / {total}",
        _UNKNOWN if card.processes is None else separator.join(map(_process, card.processes)) or "none",
    )


def _process(process: Process) -> str:
    return f"{process.pid} {process.name or _UNKNOWN} {_mib(process.memory)}"


def _mib(value: int | None) -> str:
    return _figure(None if value is None else value / _MIB)


def _figure(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.0f}"


class CsvFile:
    """A CSV file that grows by the new reports; the columns are COLUMNS, an empty cell is not measured.

    Raises:
        ClusterError: the file has other columns.
    """

    def __init__(self, path: Path) -> None:
        make_file(path)
        with path.open(encoding="utf-8", errors="replace", newline="") as stream:
            head = next(csv.reader(stream), None)
        if head not in (None, COLUMNS):
            raise ClusterError(
                f"{path}: not a file of this command; its first line is {head}; give another one"
            )
        self._path = path
        self._written: dict[str, float] = {}
        if head is None:
            self._append([dict(zip(COLUMNS, COLUMNS, strict=True))])

    def add(self, reports: Mapping[str, Report], now: float) -> None:
        """Append a row for each card of a new report, and one for each host that does not answer."""
        written, self._written = self._written, {host: report.time for host, report in reports.items()}
        for report in reports.values():
            if report.error and report.error != WAITING:
                lost = {"time": f"{now:.3f}", "host": report.host, "health": LOST, "reason": report.error}
                self._append([lost])
            elif report.time != written.get(report.host, 0.0):
                self._append(_csv_rows(report))

    def _append(self, rows: Iterable[Mapping[str, object]]) -> None:
        with self._path.open("a", encoding="utf-8", newline="") as stream:
            csv.DictWriter(stream, COLUMNS, extrasaction="ignore", lineterminator="\n").writerows(rows)


def _csv_rows(report: Report) -> Iterator[dict[str, object]]:
    for card in report.cards:
        processes = None if card.processes is None else ";".join(map(_csv_process, card.processes))
        values = {**vars(card), "card": card.index, "processes": processes}
        yield {"time": f"{report.time:.3f}", "host": report.host, **values}


def _csv_process(process: Process) -> str:
    return f"{process.pid}:{process.name}:{'' if process.memory is None else process.memory}"
