"""Which operators make a run's result wrong: those whose own route, alone of all, changes it.

Every run is the whole program in its own process. With all operators forced to the reference route the result is
good; with none it is bad. A set of operators is tried by leaving these on their own route and forcing all others, and
halved as long as it is bad.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from isthmus.debug.errors import DebugError
from isthmus.debug.record import write_file

METRIC = r"loss\b[^\d\n+-]{0,12}?([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)\b)"
OWN_ROUTES = ("kernel", "delegate")

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """One run.

    Attributes:
        values: every number that the metric matched, in order.
        operators: packets (``aten::mm``) called on the chip's own route.
    """

    values: tuple[float, ...]
    operators: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bisection:
    """What was found.

    Attributes:
        guilty: sets of operators, each of which makes the result wrong with all others on the reference route; one
            with several operators does so only as a whole.
        reason: one line.
        runs: how many times the program ran.
    """

    guilty: tuple[tuple[str, ...], ...]
    reason: str
    runs: int


@dataclass
class Bisect:
    """Looks for the guilty operators of a program.

    Args:
        command: of the program.
        environment: of the program.
        metric: regular expression; its first group is a number on standard output.
        tolerance: relative difference of two results that counts as none.
        route: reference route, ``fallback`` for the CPU.
        tell: is given a line of progress.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    metric: str = METRIC
    tolerance: float = 0.0
    route: str = "fallback"
    tell: Tell = field(default=print, repr=False)
    runs: int = field(default=0, init=False)

    def find(self) -> Bisection:
        """Run the program as often as it takes.

        Raises:
            DebugError: a run failed or printed nothing that the metric matches.
        """
        bad = self._run((), "every operator on the chip's own route")
        again = self._run((), "the same again")
        if not self._agree(bad, again):
            return self._end(
                f"the result is not deterministic: {_shown(bad)}, then {_shown(again)}; seed the program"
            )
        if not bad.operators:
            return self._end("no operator ran on the chip's own route")
        good = self._run(bad.operators, f"all {len(bad.operators)} operators on the route {self.route}")
        again = self._run(bad.operators, "the same again")
        if not self._agree(good, again):
            return self._end(
                f"the reference itself disagrees with itself: {_shown(good)}, then {_shown(again)}; raise --tolerance"
            )
        if self._agree(bad, good):
            return self._end(f"no difference: {_shown(bad)} with and without the chip's own routes")
        guilty = self._search(bad.operators, bad.operators, good)
        names = ", ".join("+".join(group) for group in guilty)
        return self._end(f"{_shown(bad)} for {_shown(good)} because of {names}", guilty)

    def _search(
        self, suspects: Sequence[str], everything: Sequence[str], good: Result
    ) -> list[tuple[str, ...]]:
        """Guilty sets within suspects, which are bad together."""
        if len(suspects) == 1:
            return [tuple(suspects)]
        half = len(suspects) // 2
        found: list[tuple[str, ...]] = []
        for part in (suspects[:half], suspects[half:]):
            if self._is_bad(part, everything, good):
                found += self._search(part, everything, good)
        # Neither half alone: they are wrong only together.
        return found or [tuple(self._narrow(list(suspects), everything, good))]

    def _narrow(self, suspects: list[str], everything: Sequence[str], good: Result) -> list[str]:
        """The suspects without those that the wrong result does not need."""
        for name in list(suspects):
            rest = [other for other in suspects if other != name]
            if self._is_bad(rest, everything, good):
                suspects = rest
        return suspects

    def _is_bad(self, part: Sequence[str], everything: Sequence[str], good: Result) -> bool:
        kept = set(part)
        forced = [name for name in everything if name not in kept]
        title = f"own route: {', '.join(part[:3])}{f' and {len(part) - 3} more' if len(part) > 3 else ''}"
        return not self._agree(self._run(forced, title, good), good)

    def _run(self, forced: Sequence[str], title: str, good: Result | None = None) -> Result:
        self.runs += 1
        with tempfile.TemporaryDirectory() as folder:
            routes, calls = Path(folder) / "routes", Path(folder) / "calls"
            items = [*_items(self.environment), *(f"{name}={self.route}" for name in forced)]
            write_file(routes, "\n".join(items).encode())
            calls.mkdir()
            changes = {"ISTHMUS_DEBUG_CALLS": str(calls)}
            if forced:
                changes["ISTHMUS_ROUTE"] = f"@{routes}"  # what it says last holds
            environment = {**self.environment, **changes}
            done = subprocess.run(self.command, env=environment, capture_output=True, text=True, check=False)
            result = Result(self._values(done), _operators(calls))
        verdict = "" if good is None else (": good" if self._agree(result, good) else ": wrong")
        self.tell(f"run {self.runs}: {title}: {_shown(result)}{verdict}")
        return result

    def _values(self, done: subprocess.CompletedProcess[str]) -> tuple[float, ...]:
        if done.returncode != 0:
            last = (done.stderr.strip() or "no message").splitlines()[-1]
            raise DebugError(f"run {self.runs} ended with status {done.returncode}: {last}")
        try:
            return tuple(float(match) for match in re.findall(self.metric, done.stdout))
        except (ValueError, TypeError):
            raise DebugError(
                f"--metric {self.metric!r}: its first group must be a number, and be the only one"
            ) from None

    def _agree(self, a: Result, b: Result) -> bool:
        if not a.values or not b.values:
            raise DebugError(f"run {self.runs} printed nothing that --metric {self.metric!r} matches")
        return len(a.values) == len(b.values) and all(map(self._is_same, a.values, b.values))

    def _is_same(self, a: float, b: float) -> bool:
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        return a == b or abs(a - b) <= self.tolerance * max(abs(a), abs(b))

    def _end(self, reason: str, guilty: Sequence[tuple[str, ...]] = ()) -> Bisection:
        return Bisection(tuple(guilty), reason, self.runs)


def _items(environment: Mapping[str, str]) -> list[str]:
    """What ISTHMUS_ROUTE says already: it is part of the chip's own routes."""
    text = environment.get("ISTHMUS_ROUTE", "")
    try:
        text = Path(text[1:]).read_text() if text.startswith("@") else text
    except OSError as error:
        raise DebugError(f"ISTHMUS_ROUTE={text}: cannot be read: {error.strerror}") from None
    return text.replace(",", " ").split()


def _operators(folder: Path) -> tuple[str, ...]:
    """Packets that the run's processes called on the chip's own route."""
    found: set[str] = set()
    for path in folder.glob("*.json"):
        for name, entry in json.loads(path.read_text()).items():
            if entry["route"] in OWN_ROUTES:
                found.add(name.partition(".")[0])
    return tuple(sorted(found))


def _shown(result: Result) -> str:
    return f"{result.values[-1]:.9g}" if result.values else "no number"


def write_calls(folder: Path) -> None:
    """In a run: say which operators were called (ISTHMUS_DEBUG_CALLS)."""
    import torch

    chip = getattr(torch, "chip")  # noqa: B009 - this package puts it there
    called = chip.dispatch_stats()["operators"]
    # The reference routes end on the CPU: an operator without a kernel there stays where it is in every run.
    found = {n: e for n, e in called.items() if torch._C._dispatch_has_kernel_for_dispatch_key(n, "CPU")}
    write_file(folder / f"{os.getpid()}.json", json.dumps(found).encode())
