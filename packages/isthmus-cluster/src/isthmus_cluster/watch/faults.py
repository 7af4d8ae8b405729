"""The last faults of a job and what was done: alerts, hang reports, checkpoints, restarts, verdicts."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from isthmus_common.files import open_regular
from isthmus_common.text import clean_text, count

_MOST = 200  # events
_TAIL = 1 << 16  # bytes of a file of alerts from before the watch
MOST_BYTES = 1 << 20  # that are read of a file at a look
_LINES = 40  # lines of a hang report
_SPANS = 12
_LARGEST = 1e11  # largest number in a file
# Errors of a file that another program has written, or that is not of the expected format.
MALFORMED = (
    ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError,
)  # fmt: skip


class Event(NamedTuple):
    """A fault, or what was done about one.

    Attributes:
        time: seconds since the epoch; for alerts, that of their file.
        kind: of an alert; or hang, checkpoint, restart, verdict.
        where: rank, or ranks; "" if of none.
        step: of the job; -1 if unknown.
        text: one line.
        more: further lines.
    """

    time: float
    kind: str
    where: str
    step: int
    text: str
    more: str = ""


class Faults:
    """Reads what is new in a health folder, and in the output of ``isthmus cluster isolate``.

    Attributes:
        counts: alerts, hangs and other events so far, by kind.
    """

    def __init__(self, folder: Path | None, verdicts: Path | None) -> None:
        self._folder, self._verdicts = folder, verdicts
        self._events: dict[object, Event] = {}
        self._alerts: dict[tuple[str, str], tuple[int, set[int]]] = {}  # first step, ranks
        self._read: dict[str, int] = {}  # bytes of the files of alerts
        self._times: dict[Path, int] = {}  # times of the other files, ns
        self.counts: Counter[str] = Counter()

    @property
    def events(self) -> list[Event]:
        """The last events, the newest first."""
        return sorted(self._events.values(), key=lambda each: -each.time)

    def add(self, event: Event, key: object = None) -> None:
        """Append an event, in place of an earlier one with this key; None: of none."""
        key = key or object()
        self._events.pop(key, None)
        self._events[key] = event
        while len(self._events) > _MOST:
            del self._events[next(iter(self._events))]
        self.counts[event.kind] += 1

    def update(self, names: Iterable[str]) -> None:
        """Read what is new.

        Args:
            names: of the files in the health folder.
        """
        saved: list[tuple[float, int]] = []
        for name in names if self._folder else ():
            path = Path(self._folder or "", name)
            if re.fullmatch(r"alerts-\d+\.jsonl", name):
                self._read_alerts(path)
            elif (match := re.fullmatch(r"hang-step-(\d+)\.txt", name)) and (at := self._time_changed(path)):
                self._add_hang(path, int(match[1]), at)
            elif (match := re.fullmatch(r"last-(\d+)\.pt", name)) and (at := self._time_changed(path)):
                saved.append((at, int(match[1])))
        if saved:
            ranks = spans(rank for _, rank in saved)
            text = f"{count(len(saved), 'checkpoint')} written before death: last-RANK.pt in {self._folder}"
            self.add(Event(max(saved)[0], "checkpoint", ranks, -1, text))
        if self._verdicts and (at := self._time_changed(self._verdicts)):
            self._add_verdict(self._verdicts, at)

    def _time_changed(self, path: Path) -> float:
        """Return the time of a file that is new or newly written, else 0."""
        try:
            at = path.stat().st_mtime_ns
        except OSError:
            return 0.0
        is_new = self._times.get(path) != at
        self._times[path] = at
        return at / 1e9 if is_new else 0.0

    def _read_alerts(self, path: Path) -> None:
        try:
            with open_regular(path) as file:
                found = os.fstat(file.fileno())
                begin = self._read.get(path.name, found.st_size - _TAIL)
                begin = max(0, begin, found.st_size - MOST_BYTES)
                if found.st_size <= begin:
                    self._read[path.name] = found.st_size  # a shorter file is a new one
                    return
                file.seek(begin)
                data = file.read(MOST_BYTES)
        except OSError:
            return
        whole, _, rest = data.rpartition(b"\n")
        self._read[path.name] = begin + len(data) - len(rest)
        for line in whole.splitlines():
            with contextlib.suppress(*MALFORMED):  # not an alert
                self._add_alert(json.loads(line), found.st_mtime)

    def _add_alert(self, alert: dict[str, Any], at: float) -> None:
        """Append an alert; those of one kind and tensor are one event, whatever their ranks and steps."""
        step, kind, name = int(number(alert["step"])), clean_text(alert["kind"]), str(alert["name"])
        slow = re.fullmatch(r"rank (\d+)", name)  # rank 0 reports the slow ones
        rank = int(number(int(slow[1]) if slow else alert["rank"]))
        first, ranks = self._alerts.setdefault((kind, name), (step, set()))
        ranks.add(rank)
        again = f" (first in step {first})" if step != first else ""
        event = Event(at, kind, spans(ranks), step, clean_text(alert["text"]) + again)
        self.add(event, (kind, name))

    def _add_hang(self, path: Path, step: int, at: float) -> None:
        try:
            with open_regular(path) as file:
                text = file.read(MOST_BYTES).decode(errors="replace")
        except OSError:
            return
        lines = [clean_text(line) for line in text.splitlines()]
        rest = [f"{count(len(lines) - _LINES, 'more line')} in {path}"] if len(lines) > _LINES else []
        found = re.search(r"suspected: ((rank \d+(, )?)+)", lines[0]) if lines else None
        where = spans(int(each) for each in re.findall(r"\d+", found[1])) if found else ""
        more = "\n".join([*lines[1:_LINES], *rest])
        self.add(Event(at, "hang", where, step, lines[0] if lines else path.name, more))

    def _add_verdict(self, path: Path, at: float) -> None:
        try:
            found = json.loads(path.read_text())
            texts = [_verdict(each, found["nodes"]) for each in found["verdicts"]] or ["no fault found"]
        except MALFORMED:
            texts = [f"{path}: not written by `isthmus cluster isolate --output`"]
        for text in texts:
            self.add(Event(at, "verdict", "", -1, clean_text(text)))


def _verdict(found: dict[str, Any], nodes: list[str]) -> str:
    part, is_of_nodes = found["part"], found["part"] in ("node", "card", "link")
    names = " - ".join(str(nodes[each] if is_of_nodes else each) for each in found["nodes"])
    what = f"card {found['card']} of {names}" if part == "card" else f"{part} {names}"
    return f"isolate: {what} is {'slow' if found['slow'] else 'faulty'}, log-odds {found['log_odds']:+.1f}"


def number(found: float) -> float:
    """Return a number of a file.

    Raises:
        ValueError, TypeError: it is negative, too large, or not a number.
    """
    if not 0 <= found <= _LARGEST:
        raise ValueError(f"{found} is not between 0 and {_LARGEST:.0e}")
    return found


def spans(numbers: Iterable[int]) -> str:
    """Return numbers as ``"0-3, 7"``; if that is too long, its beginning and how many there are."""
    ascending, parts = sorted(set(numbers)), list[list[int]]()
    for each in ascending:
        if parts and parts[-1][-1] == each - 1:
            parts[-1] = [parts[-1][0], each]
        else:
            parts.append([each])
    rest = [f"... ({len(ascending)} in all)"] if len(parts) > _SPANS else []
    return ", ".join(["-".join(map(str, part)) for part in parts[:_SPANS]] + rest)
