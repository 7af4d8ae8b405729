"""The host's side of a trace as one tree of frames, operators and runtime calls, and the user's line of each."""

from __future__ import annotations

import ast
import re
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from isthmus_diagnostics.profile.operators import enclosing_events
from isthmus_diagnostics.profile.trace import Event, Row, Trace

_FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)")
_BUILT_IN = re.compile(r"<built-in (?:method|function) (\w+)")
_LIBRARY = re.compile(r"site-packages|dist-packages|lib/python3|^<")
# Names of a call in the source, by its name in a trace.
_SPELLINGS = {"item": ("item", "float", "int", "bool"), "__next__": ("for", "next")}

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""Of an object, in the name of a frame."""

_NEAR = 100  # events to look back


@dataclass(frozen=True)
class Place:
    """A line of the user's code; ``exact`` if it is that of the call, else one near it in the function."""

    file: str
    line: int
    function: str
    exact: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({'' if self.exact else 'in '}{self.function})"


class Host:
    """Events of the host's threads.

    Args:
        trace: the trace.
        sources: folders of the user's code, to find the line of a call in.
    """

    def __init__(self, trace: Trace, sources: list[Path]) -> None:
        self.events = sorted(
            [*trace.frames, *trace.operators, *trace.runtime],
            key=lambda event: (event.start, -event.duration),
        )
        self._parents = enclosing_events(self.events)
        self._sources = sources
        self._by_id: dict[int, int] = {}
        self._by_correlation: dict[object, int] = {}
        self._rows: dict[Row, list[int]] = defaultdict(list)
        operators = set(map(id, trace.operators))
        runtime = set(map(id, trace.runtime))
        for index, event in enumerate(self.events):
            self._rows[event.row].append(index)
            if id(event) in runtime and "correlation" in event.args:
                self._by_correlation[event.args["correlation"]] = index
            elif id(event) in operators and event.external:
                self._by_id[event.external] = index
        self._launches = self._sorted_launches(trace)

    def _sorted_launches(self, trace: Trace) -> dict[Row, list[tuple[float, Event]]]:
        launches: dict[Row, list[tuple[float, Event]]] = defaultdict(list)
        for work in trace.device:
            index = self.launch(work)
            if index is not None:
                launches[self.events[index].row].append((self.events[index].start, work))
        for found in launches.values():
            found.sort(key=lambda item: item[0])
        return launches

    def launch(self, work: Event) -> int | None:
        """Return the index of the call, or else of the operator, that launched device work."""
        found = self._by_correlation.get(work.args.get("correlation"))
        return self._by_id.get(work.external) if found is None else found

    def launched_work(self, index: int) -> list[Event]:
        """Return the device work launched during an event of the host."""
        event = self.events[index]
        found = self._launches.get(event.row, [])
        first = bisect_right(found, event.start, key=lambda item: item[0] + 1e-9)
        last = bisect_right(found, event.end, key=lambda item: item[0])
        return [work for _, work in found[first:last]]

    def ancestors(self, index: int) -> Iterator[int]:
        """Return the events around an event, the innermost first."""
        end = self.events[index].end
        while (index := self._parents[index]) >= 0:
            if self.events[index].end >= end:
                yield index

    def operator(self, index: int) -> int:
        """Return the outermost operator around an event, or the event itself."""
        for outer in self.ancestors(index):
            if not self.events[outer].name.startswith("aten::"):
                break
            index = outer
        return index

    def is_inside(self, index: int, pattern: re.Pattern[str]) -> bool:
        """Return whether an event around this one matches."""
        return any(pattern.search(self.events[outer].name) for outer in self.ancestors(index))

    def has(self, index: int, pattern: re.Pattern[str]) -> bool:
        """Return whether an event within this one matches."""
        row, event = self._rows[self.events[index].row], self.events[index]
        first = bisect_right(row, event.start, key=lambda other: self.events[other].start)
        last = bisect_right(row, event.end, key=lambda other: self.events[other].start)
        return any(pattern.search(self.events[other].name) for other in row[first:last])

    def at(self, time: float) -> int | None:
        """Return the innermost event at a time on the thread that has most events."""
        if not self._rows:
            return None
        row = max(self._rows.values(), key=len)
        place = bisect_right(row, time, key=lambda index: self.events[index].start)
        index = row[place - 1] if place else -1
        while index >= 0 and self.events[index].end < time:
            index = self._parents[index]
        return index if index >= 0 else None

    def place(self, index: int) -> Place | None:
        """Return the user's line that caused an event; None without ``with_stack=True``."""
        inner = [index]
        for outer in self.ancestors(index):
            frame = _users_frame(self.events[outer].name)
            if frame:
                calls = self._calls(frame)
                line = self._line(outer, calls, inner)
                near = line or self._line_before(outer, calls, inner) or int(frame["line"])
                return Place(frame["file"], near, frame["function"], line is not None)
            if not self.events[outer].name.startswith("ProfilerStep#"):
                inner.append(outer)
        return None

    def made_by(self, index: int, name: str) -> str:
        """Return the class of the object that an event belongs to, and where the user's file makes it."""
        place = self.place(index)
        source = place and self._source(place.file)
        lines = _calls(source, 0, "").get(name, []) if source else []
        return f"{name} made in line {lines[0]}" if lines else name

    def _source(self, file: str) -> Path | None:
        return next((root / file for root in self._sources if (root / file).is_file()), None)

    def _calls(self, frame: re.Match[str]) -> dict[str, list[int]]:
        """Return the lines of the calls in a frame's function; none without its source."""
        source = self._source(frame["file"])
        first = 0 if frame["function"] == "<module>" else int(frame["line"])
        return _calls(source, first, frame["function"]) if source else {}

    def _line(self, frame: int, calls: dict[str, list[int]], inner: list[int]) -> int | None:
        """Return the line in a frame of the call that led to the inner events."""
        for index in reversed(inner):
            called = _calling_name(self.events[index].name)
            for spelling in _SPELLINGS.get(called, (called,)):
                if spelling in calls:
                    return self._line_of_call(frame, index, calls[spelling])
        return None

    def _line_before(self, frame: int, calls: dict[str, list[int]], inner: list[int]) -> int | None:
        """Return the line of the last call that the frame made before the inner events, such as for an argument."""
        if not calls:
            return None
        row = self._rows[self.events[frame].row]
        place = bisect_right(row, self.events[inner[-1]].start, key=lambda other: self.events[other].start)
        for other in reversed(row[max(0, place - _NEAR) : place]):
            if self._parents[other] == self._parents[inner[-1]] and other != inner[-1]:
                line = self._line(frame, calls, [other])
                if line is not None:
                    return line
        return None

    def _line_of_call(self, frame: int, index: int, lines: list[int]) -> int:
        """Return the line of a call: by order, if the frame called the name as often as its source does."""
        if len(lines) == 1:
            return lines[0]
        row, name = self._rows[self.events[frame].row], _calling_name(self.events[index].name)
        first = bisect_right(row, self.events[frame].start, key=lambda other: self.events[other].start)
        last = bisect_right(row, self.events[frame].end, key=lambda other: self.events[other].start)
        depth = self._parents[index]
        same = [
            other
            for other in row[first:last]
            if self._parents[other] == depth and _calling_name(self.events[other].name) == name
        ]
        return lines[same.index(index)] if len(same) == len(lines) else lines[0]


@cache
def _users_frame(name: str) -> re.Match[str] | None:
    found = _FRAME.fullmatch(name)
    return found if found and is_users(found["file"]) else None


def is_users(file: str) -> bool:
    """Return whether a file belongs to the user rather than to Python or to an installed package."""
    top = file.partition("/")[0].removesuffix(".py")
    is_ours = top == "isthmus" or top.startswith("isthmus_")
    return not (is_ours or _LIBRARY.search(file) or top in sys.stdlib_module_names or top in _packages())


@cache
def _packages() -> frozenset[str]:
    from importlib.metadata import packages_distributions

    return frozenset(packages_distributions()) | {"torch", "torch_npu", "transformers"}


def _calling_name(name: str) -> str:
    """Return the name of a function as its caller spells it."""
    if found := _BUILT_IN.match(name) or re.match(r"aten::(\w+)", name):
        return found[1]
    if found := _FRAME.fullmatch(name):
        return found["function"]
    return "__next__" if "DataLoader" in name else name.rpartition(".")[2]


@cache
def _calls(source: Path, first: int, function: str) -> dict[str, list[int]]:
    """Return the lines of the calls in a function, by the last part of the name called."""
    try:
        tree: ast.AST = ast.parse(source.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return {}
    if first:
        tree = next((node for node in ast.walk(tree) if _is_function(node, first, function)), tree)
    calls: dict[str, list[int]] = defaultdict(list)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            calls[name].append(node.func.end_lineno or node.lineno)
        elif isinstance(node, ast.For | ast.comprehension) and not ast.unparse(node.iter).startswith(
            "range("
        ):
            calls["for"].append(node.iter.lineno)
    return {name: sorted(lines) for name, lines in calls.items()}


def _is_function(node: ast.AST, line: int, name: str) -> bool:
    """Return whether a function contains a line: its first, or the one at which a trace found it running."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name != name:
        return False
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return first <= line <= (node.end_lineno or line)
