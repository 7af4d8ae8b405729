"""The fastest way to fit the layers of a model in memory: one option for each layer, by dynamic programming.

A job's step is a sequence of moments. At each, some micro-batches have run forward but not backward through some
layers, and at most one layer runs backward. A choice of options fits if at every moment

    base + sum of counts[layer] * kept(layer) + transient(layer that runs backward) <= memory

The solver extends partial choices layer by layer. It drops one if another is no slower and no larger at every moment
that later layers add to, if it cannot fit any more, and if a lower bound of its time is not below the time of a known
choice by more than the gap. The bound is the Lagrangian relaxation of the tightest moment. With a gap of 0 the result
is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

_BLOCK = 512


@dataclass(frozen=True)
class Option:
    """A way to run one layer.

    Attributes:
        time: seconds that it adds to a micro-batch.
        kept: bytes kept from forward to backward, for each micro-batch.
        transient: further bytes at the peak of its backward.
    """

    time: float
    kept: int
    transient: int


@dataclass(frozen=True)
class Moment:
    """A moment of a step.

    Attributes:
        base: bytes that do not depend on the options.
        counts: for each layer, the micro-batches whose activations are alive.
        layer: the layer that runs backward, or None.
    """

    base: int
    counts: tuple[int, ...]
    layer: int | None = None


Layers = Sequence[Sequence[Option]]


def peak(layers: Layers, moments: Sequence[Moment], choice: Sequence[int]) -> int:
    """Return the largest memory of any moment, in bytes."""
    chosen = [options[index] for options, index in zip(layers, choice, strict=True)]
    return max(
        moment.base
        + sum(count * option.kept for count, option in zip(moment.counts, chosen, strict=True))
        + (0 if moment.layer is None else chosen[moment.layer].transient)
        for moment in moments
    )


def time(layers: Layers, choice: Sequence[int]) -> float:
    """Return the seconds that a choice adds to a micro-batch."""
    return sum(options[index].time for options, index in zip(layers, choice, strict=True))


def solve(layers: Layers, moments: Sequence[Moment], memory: int, gap: float = 0.0) -> list[int] | None:
    """Return the fastest choice that fits: the index of an option for each layer; None if none fits.

    Args:
        layers: options of each layer.
        moments: moments of a step.
        memory: bytes of the device.
        gap: share of the time by which the result may exceed the optimum; 0.001 bounds the search in deep models.
    """
    return _Search(layers, _tightest_moments(moments), memory).run(gap)


def _tightest_moments(moments: Sequence[Moment]) -> list[Moment]:
    """Return the moments that others do not imply."""
    largest: dict[tuple[tuple[int, ...], int | None], int] = {}
    for moment in moments:
        key = moment.counts, moment.layer
        largest[key] = max(moment.base, largest.get(key, moment.base))
    unique = [Moment(base, *key) for key, base in largest.items()]
    return [each for each in unique if not any(_is_implied(other, each) for other in unique if other != each)]


def _is_implied(larger: Moment, smaller: Moment) -> bool:
    return (
        larger.base >= smaller.base
        and smaller.layer in (None, larger.layer)
        and all(map(int.__ge__, larger.counts, smaller.counts))
    )


class _Search:
    """One search.

    Attributes:
        times: for each layer, the times of its options.
        loads: for each layer, (options, moments): what an option adds to each moment.
        room: for each moment, the memory for the options.
    """

    def __init__(self, layers: Layers, moments: list[Moment], memory: int) -> None:
        self.moments = moments
        self.times = [np.array([option.time for option in options]) for options in layers]
        self.loads = [
            np.array(
                [
                    [each.counts[i] * o.kept + (o.transient if each.layer == i else 0) for each in moments]
                    for o in options
                ],
                dtype=np.float64,
            )
            for i, options in enumerate(layers)
        ]
        self.room = np.array([memory - each.base for each in moments], dtype=np.float64)

    def run(self, gap: float) -> list[int] | None:
        """Extend partial choices layer by layer; return the best complete one."""
        least = _sums_after([loads.min(axis=0) for loads in self.loads])
        moment, price, known = self._relaxation()
        limit = self._time(known) * (1 - gap) if known else math.inf
        bounds = _sums_after(
            [np.min(t + price * a[:, moment]) for t, a in zip(self.times, self.loads, strict=True)]
        )
        time, load = np.zeros(1), np.zeros((1, len(self.room)))
        steps: list[tuple[Indices, Indices]] = []
        for layer, (times, loads) in enumerate(zip(self.times, self.loads, strict=True)):
            time = (time[:, None] + times).ravel()
            load = (load[:, None] + loads).reshape(-1, len(self.room))
            bound = time + price * (load[:, moment] - self.room[moment]) + bounds[layer]
            fits = (load + least[layer] <= self.room).all(axis=1)
            left = np.flatnonzero(fits & (bound < limit))
            left = left[_pareto_front(time[left], self._states(layer, load[left]))]
            if not len(left):
                return known
            steps.append((left // len(times), left % len(times)))
            time, load = time[left], load[left]
        label, choice = int(time.argmin()), []
        if known and time[label] >= self._time(known):
            return known
        for parents, options in reversed(steps):
            choice.append(int(options[label]))
            label = int(parents[label])
        return choice[::-1]

    def _relaxation(self) -> tuple[int, float, list[int] | None]:
        """Return a moment, the price of its memory in seconds per byte, and a good choice that fits, if any.

        The price is that of the Lagrangian relaxation with the largest lower bound.
        """
        known: list[int] | None = None
        found = (-math.inf, 0, 0.0)
        for moment in range(len(self.room)):
            low, high = 0.0, max(float(times.max()) for times in self.times)
            for _ in range(60):
                price = (low + high) / 2
                costs = [t + price * a[:, moment] for t, a in zip(self.times, self.loads, strict=True)]
                choice = [int(cost.argmin()) for cost in costs]
                bound = sum(float(cost.min()) for cost in costs) - price * self.room[moment]
                found = max(found, (bound, moment, price))
                load = self._load(choice)
                if (load <= self.room).all() and (not known or self._time(choice) < self._time(known)):
                    known = choice
                low, high = (low, price) if load[moment] <= self.room[moment] else (price, high)
        return found[1], found[2], known and self._improve_choice(known)

    def _improve_choice(self, choice: list[int]) -> list[int]:
        """Return a choice in which no single layer can be made faster."""
        load = self._load(choice)
        while True:
            best = 0.0, 0, 0
            for layer, (times, loads) in enumerate(zip(self.times, self.loads, strict=True)):
                fits = (load - loads[choice[layer]] + loads <= self.room).all(axis=1)
                option = int(np.where(fits, times, math.inf).argmin())
                best = max(best, (float(times[choice[layer]] - times[option]), layer, option))
            if best[0] <= 0:
                return choice
            load += self.loads[best[1]][best[2]] - self.loads[best[1]][choice[best[1]]]
            choice[best[1]] = best[2]

    def _load(self, choice: list[int]) -> Floats:
        return np.sum([loads[index] for loads, index in zip(self.loads, choice, strict=True)], axis=0)

    def _time(self, choice: list[int]) -> float:
        return sum(float(times[index]) for times, index in zip(self.times, choice, strict=True))

    def _states(self, layer: int, load: Floats) -> Floats:
        """Return what later layers depend on, a column each.

        Of moments to which later layers add the same, the fullest counts. Of moments to which earlier layers added in
        proportion, one is enough.
        """
        groups: dict[bytes, list[int]] = {}
        for index in range(len(self.room)):
            added = [loads[:, index].tobytes() for loads in self.loads[layer + 1 :]]
            if any(loads[:, index].any() for loads in self.loads[layer + 1 :]):
                groups.setdefault(b"".join(added), []).append(index)
        columns = {}
        for members in groups.values():
            pasts = {self._state_key(layer, index) for index in members}
            columns[pasts.pop() if len(pasts) == 1 else members[0]] = (load - self.room)[:, members].max(
                axis=1
            )
        return np.stack(list(columns.values()), axis=1) if columns else np.zeros((len(load), 0))

    def _state_key(self, layer: int, index: int) -> tuple[object, ...]:
        moment = self.moments[index]
        counts = moment.counts[: layer + 1]
        divisor = math.gcd(*counts) or 1
        running = moment.layer if moment.layer is not None and moment.layer <= layer else None
        return (tuple(count // divisor for count in counts), running, 0 if running is None else index)


def _sums_after(values: Sequence[Floats | np.float64]) -> list[Floats | float]:
    """Return for each layer the sum over the later layers."""
    sums: list[Floats | float] = [0.0]
    for value in reversed(values[1:]):
        sums.append(sums[-1] + value)
    return sums[::-1]


def _pareto_front(time: Floats, states: Floats) -> Indices:
    """Return the indices of rows that no other row equals or beats in time and in every state."""
    order = np.lexsort((*states.T, time))
    points = states[order]
    if not states.shape[1]:
        return order[:1]
    if states.shape[1] == 1:
        before = np.concatenate([[np.inf], np.minimum.accumulate(points[:-1, 0])])
        return order[points[:, 0] < before]
    kept: list[Indices] = []
    front = points[:0]
    for start in range(0, len(order), _BLOCK):
        block = points[start : start + _BLOCK]
        beaten = (front[:, None] <= block).all(axis=2).any(axis=0)
        within = (block[:, None] <= block).all(axis=2)
        beaten |= np.triu(within, 1).any(axis=0)
        front = np.concatenate([front, block[~beaten]])
        kept.append(order[start : start + _BLOCK][~beaten])
    return np.concatenate(kept) if kept else order
