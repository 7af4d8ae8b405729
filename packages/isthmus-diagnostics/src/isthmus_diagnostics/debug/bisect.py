"""Search for the operators that make a program's result wrong.

Every run is the whole program in its own process. With all operators forced to the reference route the result is
good; with none forced it is bad. To test a set of operators, it stays on its own route and all others are forced.
A bad set is halved.
"""

import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from isthmus import options
from isthmus_common.files import write_file
from isthmus_diagnostics.debug import called_operators, readings
from isthmus_diagnostics.debug.called_operators import Called
from isthmus_diagnostics.debug.errors import DebugError
from isthmus_diagnostics.debug.readings import METRIC, Readings

# The default tolerance is this many times the difference of a repeated run,
NOISE_FACTOR = 10.0
# and at least this: float32 rounding over a few steps.
SMALLEST = 1e-5
# A program whose repeated run differs by more is not seeded.
LARGEST_NOISE = 1e-3

Tell = Callable[[str], None]


class RunError(DebugError):
    """A run failed.

    Attributes:
        refused: operators with a call that their forced route did not serve.
    """

    def __init__(self, message: str, refused: tuple[str, ...]) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(frozen=True)
class Result:
    """One run: the numbers printed and the operators called."""

    readings: Readings
    called: Called


@dataclass(frozen=True)
class Bisection:
    """The result of a search.

    Attributes:
        guilty: sets of operators. Each makes the result wrong with all other operators on the reference route; a
            set of several operators does so only as a whole.
        reason: one line.
        runs: number of runs of the program.
    """

    guilty: tuple[tuple[str, ...], ...]
    reason: str
    runs: int


@dataclass
class Bisect:
    """Search for the guilty operators of a program.

    Args:
        command: of the program.
        environment: of the program.
        metric: regular expression; its first group is a number on standard output.
        tolerance: relative difference up to which two results are equal; None measures it by repeated runs.
        route: reference route, ``fallback`` for the CPU.
        tell: called with each line of progress.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    metric: str = METRIC
    tolerance: float | None = None
    route: str = "fallback"
    tell: Tell = field(default=print, repr=False)
    runs: int = field(default=0, init=False)
    noise: float = field(default=0.0, init=False)

    def find(self) -> Bisection:
        """Run the program until the guilty operators are found.

        Raises:
            DebugError: a run failed, or its output did not match the metric.
        """
        bad = self._run((), "every operator on the chip's own route")
        self._introduce(bad)
        if again := self._differing_repeat(bad, ()):
            return self._end(f"the result is not deterministic: {again}; seed the program")
        operators = bad.called.operators
        if not operators:
            own = len(bad.called.routeless) + len(bad.called.random)
            none = f"none of the {own} operators called can be forced to the route {self.route}"
            return self._end(none if own else "no operator ran on the chip's own route")
        good, operators = self._reference(operators)
        if again := self._differing_repeat(good, operators):
            return self._end(f"the reference run is not deterministic: {again}; raise --tolerance")
        if self._agree(bad, good):
            return self._end(self._no_difference(bad.readings, good.readings))
        guilty = self._search(operators, operators, good)
        names = ", ".join("+".join(group) for group in guilty)
        wrong, right = bad.readings.most_different_pair(good.readings)
        return self._end(f"got {wrong}, expected {right}, because of {names}", guilty)

    def _introduce(self, first: Result) -> None:
        """Print the compared number and the operators that are never forced."""
        found = first.readings
        if not found.values:
            raise DebugError(f"run {self.runs}: no line of the output matches --metric {self.metric!r}")
        self.tell(
            f"comparing {len(found.values)} numbers; the last is {_format_readings(found)}, "
            f"from the line: {found.line}"
        )
        if names := first.called.random:
            self.tell(f"never forced, because they draw random numbers: {', '.join(names)}")
        if names := first.called.routeless:
            self.tell(f"never forced, because they have no route {self.route}: {', '.join(names)}")

    def _reference(self, operators: tuple[str, ...]) -> tuple[Result, tuple[str, ...]]:
        """Run with all operators forced except those whose reference route does not serve their arguments."""
        while True:
            try:
                return self._run(
                    operators, f"all {len(operators)} operators on the route {self.route}"
                ), operators
            except RunError as error:
                rest = tuple(name for name in operators if name not in error.refused)
                if not rest or len(rest) == len(operators):
                    raise
                names = ", ".join(error.refused)
                self.tell(
                    f"run {self.runs}: never forced, because route {self.route} does not serve them: {names}"
                )
                operators = rest

    def _differing_repeat(self, first: Result, forced: Sequence[str]) -> str:
        """Repeat a run; return both results if they differ, else ""."""
        again = self._run(forced, "repeated")
        noise = first.readings.distance(again.readings)
        if self.tolerance is None and noise <= LARGEST_NOISE:
            self.noise = max(self.noise, noise)
        elif not self._agree(first, again):
            return ", then ".join(first.readings.most_different_pair(again.readings))
        return ""

    def _no_difference(self, bad: Readings, good: Readings) -> str:
        distance = bad.distance(good)
        if distance == 0:
            return f"no difference: {_format_readings(bad)} with and without the chip's own routes"
        if distance > self._limit:
            return (
                f"the results differ by {distance:.2g}, one unit in the last printed digit; print more digits"
            )
        if self.tolerance is None:
            return (
                f"no difference: {distance:.2g} is below {self._limit:.2g} ({NOISE_FACTOR:g} times the difference of"
                f" a repeated run, at least {SMALLEST:g}); give a lower --tolerance"
            )
        return f"no difference: {distance:.2g} is below --tolerance {self.tolerance:g}; lower it"

    def _search(
        self, suspects: Sequence[str], everything: Sequence[str], good: Result
    ) -> list[tuple[str, ...]]:
        """Return the guilty sets within suspects, which are bad together."""
        if len(suspects) == 1:
            return [tuple(suspects)]
        half = len(suspects) // 2
        found: list[tuple[str, ...]] = []
        for part in (suspects[:half], suspects[half:]):
            if self._is_bad(part, everything, good):
                found += self._search(part, everything, good)
        # Neither half is bad alone, only both together.
        return found or [tuple(self._narrow(list(suspects), everything, good))]

    def _narrow(self, suspects: list[str], everything: Sequence[str], good: Result) -> list[str]:
        """Remove suspects without which the result is still wrong."""
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
                changes["ISTHMUS_ROUTE"] = f"@{routes}"  # the last entry for an operator holds
            environment = {**self.environment, **changes}
            done = subprocess.run(self.command, env=environment, capture_output=True, text=True, check=False)
            found = called_operators.read(calls, self.route)
            result = Result(self._readings(done, found.refused), found)
        verdict = "" if good is None else (": good" if self._agree(result, good) else ": wrong")
        self.tell(f"run {self.runs}: {title}: {_format_readings(result.readings)}{verdict}")
        return result

    def _readings(self, done: subprocess.CompletedProcess[str], refused: tuple[str, ...]) -> Readings:
        if done.returncode != 0:
            cause = _cause(done.stderr)
            raise RunError(f"run {self.runs} exited with status {done.returncode}: {cause}", refused)
        return readings.read(done.stdout, self.metric)

    def _agree(self, a: Result, b: Result) -> bool:
        if not a.readings.values or not b.readings.values:
            raise DebugError(f"run {self.runs}: no line of the output matches --metric {self.metric!r}")
        if a.readings.distance(b.readings) <= self._limit:
            return True
        return self.tolerance is None and a.readings.is_rounding(b.readings)

    @property
    def _limit(self) -> float:
        return max(NOISE_FACTOR * self.noise, SMALLEST) if self.tolerance is None else self.tolerance

    def _end(self, reason: str, guilty: Sequence[tuple[str, ...]] = ()) -> Bisection:
        return Bisection(tuple(guilty), reason, self.runs)


def _items(environment: Mapping[str, str]) -> list[str]:
    """Return the entries of ISTHMUS_ROUTE: they are part of the chip's own routes."""
    text = options.text("route", environment)
    try:
        text = Path(text[1:]).read_text() if text.startswith("@") else text
    except OSError as error:
        raise DebugError(f"ISTHMUS_ROUTE={text}: cannot be read: {error.strerror}") from None
    return text.replace(",", " ").split()


def _cause(errors: str) -> str:
    """Return the line with the cause of a failed run: a refused setting, else the last line."""
    lines = errors.strip().splitlines() or ["no message"]
    refused = [line for line in lines if "ISTHMUS_ROUTE" in line or line.startswith("isthmus: ISTHMUS_")]
    return (refused or lines[-1:])[0]


def _format_readings(found: Readings) -> str:
    return f"{found.values[-1]:.9g}" if found.values else "no number"
