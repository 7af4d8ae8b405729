"""State of a job, from the files of its health folder, and of its cards."""

from __future__ import annotations

import json
import re
import statistics
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from isthmus_cluster.monitor.card import Report
from isthmus_cluster.watch.faults import MALFORMED, MOST_BYTES, Event, Faults, number, spans
from isthmus_common.files import open_regular
from isthmus_common.text import clean_text

_MOST_RANKS = 1 << 17
_PROBLEMS = 5  # that are shown
SILENT = 3.0  # seconds without a report, as in isthmus_diagnostics.health.reports, which imports PyTorch
COLUMNS = 180  # columns of the history
_AGES = 60.0  # seconds between the last reports of the ranks of one job, when none reports any more
_BASE, _STEPS = 10.0, 4  # seconds and steps over which a step time is taken, at least
_STALLED = 5.0, 3.0  # seconds, and step times, without a step
_SHORTEST = 1.0  # seconds in a collective from which it is listed; others come and go
_COLLECTIVE = re.compile(r"(?P<name>.+) #(?P<number>\d+)(?: of .*)? in group (?P<group>\S+)")
_LIBRARIES = re.compile(
    r"^<|/site-packages/torch/|/isthmus/(chip|launch|ops|shim)/|/isthmus_(common|diagnostics)/"
    r"|/lib/python3[\d.]*/(?!(site|dist)-packages/)"
)
_LEAST = 1e-3  # seconds
ABSENT, NO_REPORT = 0.0, -1.0  # in place of milliseconds


class Rank(NamedTuple):
    """A rank.

    Attributes:
        rank, host, process: which.
        step: completed steps.
        state: running, collective (in one), silent (no report), ended, or absent (no report yet).
        silent: seconds without a report.
        collective: the oldest one in flight, as ``all_reduce #3 of [[4]] in group 0``; "" without one.
        waited: seconds in it.
        step_time: seconds; that of the step in progress if it takes far longer; 0 if unknown.
        own_time: part of it in which no collective was in flight.
        line: innermost frame of the program.
    """

    rank: int
    host: str = ""
    process: int = 0
    step: int = -1
    state: str = "absent"
    silent: float = 0.0
    collective: str = ""
    waited: float = 0.0
    step_time: float = 0.0
    own_time: float = 0.0
    line: str = ""

    @property
    def doing(self) -> str:
        """The state in words."""
        where = f"in {self.collective} for {self.waited:.0f} s" if self.collective else ""
        if self.state == "silent":
            return f"silent for {self.silent:.0f} s{where and ', last '}{where}"
        return where or {"absent": "no report yet"}.get(self.state, self.state)


class Collective(NamedTuple):
    """A collective in flight.

    Attributes:
        name: such as ``all_reduce #3``.
        group: name of the process group.
        seconds: since the first rank entered it.
        ranks: in it.
        missing: other ranks of the group, as far as known.
    """

    name: str
    group: str
    seconds: float
    ranks: list[int]
    missing: list[int]


class Column(NamedTuple):
    """A time of the history: milliseconds by rank, or ABSENT, or NO_REPORT.

    Attributes:
        number: ascending.
        time: of its last look, seconds since the epoch.
        step, own: of each rank, as in :class:`Rank`.
        usual: medians of both, of the ranks that advance; 0 if none does.
    """

    number: int
    time: float
    step: list[float]
    own: list[float]
    usual: tuple[float, float]


class View(NamedTuple):
    """The state of a job at one time.

    Attributes:
        time: of the look, seconds since the epoch.
        folder: of the job's health; "" without one.
        problems: why something is not known, one line each.
        counts: events so far, by kind.
        cards: the last report of each host.
    """

    time: float
    folder: str
    problems: list[str]
    ranks: list[Rank]
    collectives: list[Collective]
    events: list[Event]
    counts: dict[str, int]
    columns: list[Column]
    cards: Mapping[str, Report]

    @property
    def summary(self) -> str:
        """``step 12, 8 ranks: 7 in a collective, 1 silent``."""
        if not self.ranks:
            return "no rank has reported" if self.folder else "cards only"
        words = {"collective": "in a collective", "absent": "without a report yet"}
        states = [each.state for each in self.ranks]
        parts = [f"{states.count(each)} {words.get(each, each)}" for each in dict.fromkeys(sorted(states))]
        steps = [each.step for each in self.ranks if each.step >= 0]
        return f"step {max(steps, default=0)}, {len(states)} ranks: {', '.join(parts)}"

    @property
    def usual(self) -> tuple[float, float]:
        """Medians of step time and own time over the history, ms; 0 if unknown."""
        pairs = [each.usual for each in self.columns if each.usual[0]]
        return _median(step for step, _ in pairs), _median(own for _, own in pairs)


def _median(values: Iterable[float]) -> float:
    return statistics.median([*values] or [0.0])


@dataclass
class _Track:
    """The history of a rank; `points` are times and steps at which it had advanced."""

    process: tuple[str, int]
    began: float
    step: int
    time: float
    seen: float
    has_moved: bool = False
    is_stalled: bool = False
    points: deque[tuple[float, int]] = field(default_factory=deque)

    def step_time(self, at: float, step: int, reported: float) -> float:
        """Return the mean time of the last steps, or that of the present one if it takes far longer; seconds."""
        points = self.points
        if step != self.step:
            self.step = step
            points.append((at, step))
        while len(points) > 2 and at - points[1][0] >= _BASE and step - points[1][1] >= _STEPS:
            points.popleft()
        usual, stalled = reported, at - (points[-1][0] if points else self.began)
        if len(points) > 1:
            usual = (points[-1][0] - points[0][0]) / (points[-1][1] - points[0][1])
        self.is_stalled = step > 0 and stalled > max(_STALLED[0], _STALLED[1] * usual)
        return stalled if self.is_stalled else usual


class Watcher:
    """Looks at a job and its cards again and again.

    Args:
        folder: of the job's health; None: cards only.
        verdicts: file that ``isthmus cluster isolate --output`` writes; None without one.
        window: seconds of the history.
    """

    def __init__(self, folder: Path | None, verdicts: Path | None = None, window: float = 1800.0) -> None:
        self._folder = folder
        self.period = window / COLUMNS
        self._faults = Faults(folder, verdicts)
        self._tracks: dict[int, _Track] = {}
        self._last: dict[int, Rank] = {}
        self._groups: dict[str, set[int]] = {}
        self._columns: deque[Column] = deque(maxlen=COLUMNS)
        self._world = 0
        self.pause = 0.0  # seconds between the last two looks
        self.view = View(0.0, str(folder or ""), [], [], [], [], {}, [], {})

    def update(self, cards: Mapping[str, Report] | None = None) -> View:
        """Read what is new, and return the view, which is also in ``view`` for other threads.

        Args:
            cards: the last report of each host.
        """
        now, problems = time.time(), []
        names: list[str] = []
        if self._folder:
            try:
                names = [each.name for each in self._folder.iterdir()]
            except OSError as error:
                text = "a job with `isthmus run --health --health-dir` makes it"
                problems.append(f"{self._folder}: {(error.strerror or '').lower()}; {text}")
        self._faults.update(names)
        statuses = self._statuses(names, problems)
        ranks = self._ranks(statuses, now)
        self._record(ranks, now)
        collectives = self._collectives(ranks)
        self.pause = now - self.view.time if self.view.time else 0.0
        if len(problems) > _PROBLEMS:
            problems[_PROBLEMS:] = [f"and {len(problems) - _PROBLEMS} more"]
        self.view = View(
            now, str(self._folder or ""), problems, ranks, collectives, self._faults.events,
            dict(self._faults.counts), list(self._columns), cards or {},
        )  # fmt: skip
        return self.view

    def _statuses(self, names: Iterable[str], problems: list[str]) -> dict[int, dict[str, Any]]:
        found = {}
        for name in names:
            if match := re.fullmatch(r"status-(\d+)\.json", name):
                try:
                    rank = int(match[1])
                    with open_regular(Path(self._folder or "", name)) as file:
                        found[rank] = _parse_status(file.read(MOST_BYTES), rank)
                except FileNotFoundError:
                    continue  # a rank that has just ended removes its file
                except MALFORMED as error:
                    problems.append(
                        f"{name}: not a status of isthmus_diagnostics.health ({clean_text(error)})"
                    )
        return found

    def _ranks(self, statuses: dict[int, dict[str, Any]], now: float) -> list[Rank]:
        """Return the ranks of the job, without those of an earlier, larger one."""
        ages = {rank: self._age(rank, each, now) for rank, each in statuses.items()}
        newest = max((each["time"] for each in statuses.values()), default=0.0)
        current = [each for rank, each in statuses.items() if ages[rank] <= SILENT] or [
            each for each in statuses.values() if newest - each["time"] <= _AGES
        ]
        world = max((max(each["ranks"], each["rank"] + 1) for each in current), default=self._world)
        if self._note_restarts(statuses, now) or world != self._world:  # another job
            self._world = world
            self._last.clear()
            self._groups.clear()
        for rank, each in statuses.items():
            self._last[rank] = self._make_rank(each, ages[rank])
        for rank in self._last.keys() - statuses.keys():
            self._last[rank] = self._last[rank]._replace(state="ended", collective="", silent=0.0)
        return [self._last.get(rank, Rank(rank)) for rank in range(self._world)]

    def _age(self, rank: int, status: dict[str, Any], now: float) -> float:
        """Return the seconds since the last report: by this machine's clock alone once a second one has been seen."""
        track, clock = self._tracks.get(rank), time.monotonic()
        if track is None:
            return max(0.0, now - status["time"])
        if track.time != status["time"]:
            track.time, track.seen, track.has_moved = status["time"], clock, True
        return clock - track.seen if track.has_moved else max(0.0, now - status["time"])

    def _note_restarts(self, statuses: dict[int, dict[str, Any]], now: float) -> bool:
        """Append an event about the ranks that have started again; return whether there are any."""
        again = []
        for rank, each in statuses.items():
            process, track = (each["host"], each["process"]), self._tracks.get(rank)
            if track is None or track.process != process:
                if track is not None:
                    again.append(rank)
                self._tracks[rank] = _Track(
                    process, each["time"], each["step"], each["time"], time.monotonic()
                )
        if again:
            step = max(statuses[rank]["step"] for rank in again)
            self._faults.add(Event(now, "restart", spans(again), step, "started again as new processes"))
        return bool(again)

    def _make_rank(self, status: dict[str, Any], age: float) -> Rank:
        rank, at, collective = status["rank"], status["time"], status["collective"]
        step_time = self._tracks[rank].step_time(at, status["step"], status["step_time"])
        silent = age if age > SILENT else 0.0
        waited = at - status["since"] + silent if collective else 0.0
        state = "silent" if silent else "collective" if collective else "running"
        own_time = step_time * min(1.0, max(0.0, 1 - status["waiting"]))
        if self._tracks[rank].is_stalled:  # in a hang, that of the rank that the others wait for
            own_time = max(_LEAST, step_time - waited)
        place = rank, status["host"], status["process"], status["step"]
        return Rank(*place, state, silent, collective, waited, step_time, own_time, status["line"])

    def _collectives(self, ranks: list[Rank]) -> list[Collective]:
        """Return the collectives in flight, the oldest first."""
        found: dict[tuple[str, str], list[Rank]] = {}
        for each in ranks:
            if match := _COLLECTIVE.fullmatch(each.collective):
                found.setdefault((f"{match['name']} #{match['number']}", match["group"]), []).append(each)
                self._groups.setdefault(match["group"], set()).add(each.rank)
        self._groups["0"] = set(range(self._world))
        listed = []
        for (name, group), inside in found.items():
            seconds = max(each.waited for each in inside)
            if seconds < _SHORTEST:
                continue
            is_pair = name.startswith(("send", "recv"))
            missing = set() if is_pair else self._groups[group] - {each.rank for each in inside}
            listed.append(Collective(name, group, seconds, [each.rank for each in inside], sorted(missing)))
        return sorted(listed, key=lambda each: -each.seconds)

    def _record(self, ranks: list[Rank], now: float) -> None:
        """Write the newest column of the history."""
        if not ranks:
            return
        number = int(now / self.period)
        if self._columns and self._columns[-1].number == number:
            self._columns.pop()
        step = [_cell(each, each.step_time) for each in ranks]
        own = [_cell(each, each.own_time) for each in ranks]
        moving = [i for i, value in enumerate(step) if value > 0 and not self._tracks[i].is_stalled]
        usual = _median(step[i] for i in moving), _median(own[i] for i in moving)
        self._columns.append(Column(number, now, step, own, usual))


def _cell(rank: Rank, seconds: float) -> float:
    if rank.state == "silent":
        return NO_REPORT
    return ABSENT if rank.state in ("ended", "absent") else float(f"{1000 * seconds:.4g}")


def _parse_status(text: bytes, rank: int) -> dict[str, Any]:
    """Return the entries of a status file, of the types that Status of isthmus_diagnostics.health has.

    Raises:
        one of MALFORMED: it is not one.
    """
    found = json.loads(text)
    if found["rank"] != rank or not rank < _MOST_RANKS or not 0 < found["ranks"] <= _MOST_RANKS:
        raise ValueError(f"rank {found['rank']} of {found['ranks']}")
    parsed: dict[str, Any] = {each: int(number(found[each])) for each in ("rank", "ranks", "process", "step")}
    parsed |= {each: float(number(found[each])) for each in ("time", "step_time", "waiting", "since")}
    stack = [str(each) for each in found["stack"]]
    users = [each for each in stack if not _LIBRARIES.search(each)]
    line = clean_text((users or stack or [""])[-1])
    return {
        **parsed,
        "host": clean_text(found["host"]),
        "collective": clean_text(found["collective"]),
        "line": line,
    }
