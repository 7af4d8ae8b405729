"""The options of one layer, from the measurement of its modules: what to recompute, at what time and memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from isthmus_diagnostics.plan.solver import Option

WHOLE = "."  # the layer itself, among the names of its modules
_UNITS = 12  # that are combined; of more, those that save most
_OPTIONS = 24


@dataclass
class Unit:
    """A module in one forward of a layer. Bytes of a storage count once, whoever refers to it.

    Attributes:
        time: seconds of its forward.
        saved: storages that its own operators save for the backward, without those of its units.
        inputs: storages of its inputs.
        calls: how often it ran.
        is_recomputable: whether a second forward changes nothing.
    """

    time: float = 0.0
    saved: dict[int, int] = field(default_factory=dict)
    inputs: dict[int, int] = field(default_factory=dict)
    calls: int = 0
    is_recomputable: bool = True


@dataclass(frozen=True)
class Choice:
    """An option of a layer with the names of the modules that it recomputes."""

    recomputed: tuple[str, ...]
    option: Option


def choices(
    units: Mapping[str, Unit], hidden: int, kept_transient: int, whole_transient: int | None
) -> list[Choice]:
    """Return the options of a layer that none beats in time, memory and peak, the fastest first.

    Args:
        units: the layer as ``"."``, and its modules by name in the order of their calls.
        hidden: bytes that the layer keeps and no operator has saved.
        kept_transient: bytes at the peak of its backward over its begin, if it keeps everything.
        whole_transient: the same if it recomputes everything; None if this was not measured.
    """
    found = [
        choice(units, chosen, hidden, kept_transient, whole_transient) for chosen in _combinations(units)
    ]
    found.sort(key=lambda each: (each.option.time, each.option.kept, each.option.transient))
    front: list[Choice] = []
    for each in found:
        if not any(_beats(other.option, each.option) for other in front):
            front.append(each)
    return _thin_front(front)


def _beats(a: Option, b: Option) -> bool:
    return a.kept <= b.kept and a.transient <= b.transient


def _thin_front(front: list[Choice]) -> list[Choice]:
    """Drop options that save least over their neighbour until there are few; the first and the smallest stay."""
    smallest = min(front, key=lambda each: each.option.kept)
    while len(front) > _OPTIONS:
        inner = [i for i in range(1, len(front)) if front[i] is not smallest]
        del front[min(inner, key=lambda i: front[i - 1].option.kept - front[i].option.kept)]
    return front


def _combinations(units: Mapping[str, Unit]) -> Iterator[tuple[str, ...]]:
    """Yield sets of modules to recompute, none inside another."""
    yield ()
    if units[WHOLE].is_recomputable:
        yield (WHOLE,)
    names = [
        name for name, unit in units.items() if name != WHOLE and unit.calls == 1 and unit.is_recomputable
    ]
    saving = {name: _bytes_saved(units, name) for name in names}
    names = sorted((name for name in names if saving[name] > 0), key=lambda name: -saving[name])[:_UNITS]
    for size in range(1, len(names) + 1):
        for chosen in itertools.combinations(names, size):
            if not any(_is_inside(a, b) for a in chosen for b in chosen):
                yield chosen


def _is_inside(name: str, other: str) -> bool:
    return other != name and (other == WHOLE or name.startswith(f"{other}."))


def _bytes_saved(units: Mapping[str, Unit], name: str) -> int:
    """Return the bytes that a module alone would keep and its recompute does not."""
    kept = dict(units[name].inputs)
    inside = _bytes_inside(units, [name])
    return sum(size for key, size in inside.items() if key not in kept)


def _bytes_inside(units: Mapping[str, Unit], names: Sequence[str]) -> dict[int, int]:
    saved: dict[int, int] = {}
    for name, unit in units.items():
        if any(name == each or _is_inside(name, each) for each in names):
            saved.update(unit.saved)
    return saved


def choice(
    units: Mapping[str, Unit],
    chosen: tuple[str, ...],
    hidden: int,
    kept_transient: int,
    whole_transient: int | None,
) -> Choice:
    """Return the option of a layer that recomputes the chosen modules; see :func:`choices`."""
    kept: dict[int, int] = dict(units[WHOLE].inputs)
    for name, unit in units.items():
        if not any(name == each or _is_inside(name, each) for each in chosen):
            kept.update(unit.saved)
    for name in chosen:
        kept.update(units[name].inputs)
    total = sum(kept.values()) + (0 if chosen == (WHOLE,) else hidden)
    seconds = sum(units[name].time for name in chosen)
    if chosen == (WHOLE,) and whole_transient is not None:
        transient = whole_transient
    else:
        transient = kept_transient + max((_bytes_needed(units, name, kept) for name in chosen), default=0)
    return Choice(chosen, Option(seconds, total, transient))


def _bytes_needed(units: Mapping[str, Unit], name: str, kept: Mapping[int, int]) -> int:
    """Return the bytes that the recompute of a module adds, less what the modules after it have freed by then."""
    order = list(units)
    before: dict[int, int] = dict(units[WHOLE].inputs)
    after: dict[int, int] = {}
    for other in order:
        is_later = other != WHOLE and order.index(other) > order.index(name) and not _is_inside(other, name)
        (after if is_later else before).update(units[other].saved)
    added = sum(size for key, size in _bytes_inside(units, [name]).items() if key not in kept)
    freed = sum(size for key, size in after.items() if key in kept and key not in before)
    return max(0, added - freed)
