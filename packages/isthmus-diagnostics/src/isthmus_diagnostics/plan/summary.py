"""Input of the solver, from the measurement of a step: the options of each kind of layer, and the moments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from isthmus_diagnostics.plan.choices import WHOLE, choices
from isthmus_diagnostics.plan.measure import Probe, Timeline
from isthmus_diagnostics.plan.solver import Moment, Option


def summary(
    line: Timeline,
    probes: Sequence[Probe],
    places: Sequence[int],
    kinds: Sequence[int],
    bandwidth: tuple[float, float],
) -> dict[str, Any]:
    """Return the measurement of a step in which the probed layers kept their activations.

    Args:
        line: memory of the step.
        probes: a layer of each kind.
        places: the indices of these layers.
        kinds: kind of each layer.
        bandwidth: of copies to the host and back, in bytes per second.
    """
    times = Counter(key for inputs in line.inputs.values() for key in inputs)
    shared = {key for key, count in times.items() if count > 1}  # such as masks: not kept by any one layer
    own = [{k: v for k, v in line.inputs[i].items() if k not in shared} for i in range(len(kinds))]
    kept = [sum(inputs.values()) for inputs in own]
    found = []
    for kind, (probe, place) in enumerate(zip(probes, places, strict=True)):
        _drop(probe, shared | probe.weights)
        others = [i for i in range(len(kinds)) if kinds[i] == kind and i != place]
        is_recomputed = probe.units[WHOLE].is_recomputable
        options = choices(
            probe.units,
            _bytes_hidden(line, probe, place),
            _transient(line, [place]) or 0,
            _transient(line, others) if is_recomputed else None,
        )
        found.append(
            [
                {"actions": dict.fromkeys(each.recomputed, "recompute"), **asdict(each.option)}
                for each in options
            ]
        )
        offloaded = _offload_option(options[0].option, probe.units[WHOLE].time, bandwidth)
        found[-1].append({"actions": {WHOLE: "offload"}, **asdict(offloaded)})
        for index in [place] if is_recomputed else [place, *others]:
            kept[index] = options[0].option.kept
    return {
        "kinds": list(kinds),
        "choices": found,
        "times": [each.units[WHOLE].time if each.units[WHOLE].is_recomputable else 0.0 for each in probes],
        "moments": [asdict(each) for each in _moments(line, kept)],
        "static": line.intervals[0].start,
        "forwards": max(line.forwards),
    }


def _offload_option(keep: Option, forward: float, bandwidth: tuple[float, float]) -> Option:
    """Return the option of a layer whose activations are on the host between forward and backward.

    The copies run beside the forward, and beside a backward twice as long. The device has those of one layer more.
    """
    out, back = (keep.kept / rate for rate in bandwidth)
    return Option(max(0.0, out - forward) + max(0.0, back - 2 * forward), 0, keep.transient + 2 * keep.kept)


def _drop(probe: Probe, keys: set[int]) -> None:
    for unit in probe.units.values():
        for storages in (unit.saved, unit.inputs):
            for key in keys & storages.keys():
                del storages[key]


def _bytes_hidden(line: Timeline, probe: Probe, place: int) -> int:
    """Return the bytes that a layer keeps although no operator saved them, such as attributes of a context."""
    known = {key: size for unit in probe.units.values() for key, size in unit.saved.items()}
    known.update(line.outputs[place])
    for key in line.inputs[place]:
        known.pop(key, None)
    return max(0, line.grown[place] - sum(known.values()))


def _transient(line: Timeline, layers: Sequence[int]) -> int | None:
    """Return the most bytes by which the backward of some layers exceeds its begin."""
    found = [each.peak - each.start for each in line.intervals if each.layer in layers]
    return max(found, default=None)


def _moments(line: Timeline, kept: Sequence[int]) -> list[Moment]:
    """Return the moments of the step with the bytes that do not depend on what layers keep."""
    moments: dict[tuple[tuple[int, ...], int | None], int] = {}
    for each in line.intervals:
        layers = sum(count * size for count, size in zip(each.counts, kept, strict=True))
        base = (each.peak if each.layer is None else each.start) - layers
        key = each.counts, each.layer
        moments[key] = max(base, moments.get(key, base))
    return [Moment(base, *key) for key, base in moments.items()]
