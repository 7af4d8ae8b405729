"""Steps of a small LLaMA within a memory: the plan of isthmus, full recompute, none, and AscendSpeed's selection.

At three points of memory between full recompute and none, the plan is solved from one measurement; AscendSpeed's
adaptive selective recompute is written here from its documentation: memory of a module without regard to storages
that others keep, no memory for the recompute itself, so its target is lowered until its choice fits, as its search
does by runs out of memory. Goals: at most the time of full recompute; at least half-way to none at the mid-point;
at most the time of AscendSpeed's selection.
"""

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from harness import interleave, print_table, ratio, save
from torch import nn

from isthmus.plan import actions, layers, solver
from isthmus.plan.choices import WHOLE, Unit, choice
from isthmus.plan.measured import Measured, Offload
from isthmus.plan.session import Measuring

LAYERS, HIDDEN, INTERMEDIATE, VOCABULARY, BATCH, SEQUENCE = 6, 256, 704, 1024, 4, 256
POINTS = (0.25, 0.5, 0.75)
UNFAIR = (
    "AscendSpeed's own code measures and searches on NPUs only; its selection here gets the same measurement of the "
    "same step. Peers share one model, whose actions are switched between the steps, so caches are equally warm. "
    "Times are of the CPU, which is what the host chip computes with: other programs do not disturb them."
)
MIB = 1 << 20


def trainer() -> tuple[nn.Module, Callable[[], float]]:
    """Return a model on the chip, and a function that makes a step and returns its seconds of CPU."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape = {"hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "num_hidden_layers": LAYERS}
    config = LlamaConfig(num_attention_heads=8, vocab_size=VOCABULARY, use_cache=False, **shape)
    model = LlamaForCausalLM(config).to("chip").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(VOCABULARY, (BATCH, SEQUENCE), device="chip")

    def step() -> float:
        torch.accelerator.synchronize()
        begin = time.process_time()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.accelerator.synchronize()
        return time.process_time() - begin

    return model, step


def measure(step: Callable[[], float]) -> tuple[Measured, dict[str, Unit]]:
    """Measure the layers as `isthmus plan recompute` does; also return the modules of a layer."""
    with tempfile.TemporaryDirectory() as folder:
        session = Measuring(Path(folder))
        try:
            while True:
                step()
        except SystemExit:
            found = json.loads((Path(folder) / "rank0.json").read_text())
    session.stop()
    return Measured.of([found], Offload.NONE), session.probes[0].units


def combinations(units: dict[str, Unit]) -> list[tuple[tuple[str, ...], float, int]]:
    """AscendSpeed's: (modules, milliseconds, bytes) of full, none and sets of children and grandchildren."""
    inside = {
        n: {k: v for m in units if m == n or m.startswith(f"{n}.") for k, v in units[m].saved.items()}
        for n in units
    }
    memory = {n: sum(size for key, size in inside[n].items() if key not in units[n].inputs) for n in units}
    inputs = {n: sum(unit.inputs.values()) for n, unit in units.items()}
    everything = sum({k: v for unit in units.values() for k, v in unit.saved.items()}.values())
    names = [n for n, unit in units.items() if n != WHOLE and unit.calls == 1 and memory[n] >= inputs[n]]
    parents = {n.partition(".")[0] for n in names if "." in n}
    found = [((WHOLE,), units[WHOLE].time, inputs[WHOLE]), ((), 0.0, everything)]
    for size in range(1, len(names) + 1):
        for chosen in itertools.combinations(names, size):
            children = {parent: {n for n in names if n.startswith(f"{parent}.")} for parent in parents}
            if parents <= set(chosen) or any(each and each <= set(chosen) for each in children.values()):
                continue
            if any(n.partition(".")[0] in chosen for n in chosen if "." in n):
                continue
            kept = everything - sum(memory[n] - inputs[n] for n in chosen)
            found.append((chosen, sum(units[n].time for n in chosen), kept))
    return found


def knapsack(
    found: list[tuple[tuple[str, ...], float, int]], memory: int, count: int
) -> list[tuple[str, ...]]:
    """The cheapest combination for each of equal layers within a memory, in MiB; what is not covered is full."""
    full = found[0]
    sizes = [max(0, -(-size // MIB)) for _, _, size in found]
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}
    for _ in range(count):
        following: dict[int, tuple[float, list[int]]] = {}
        for used, (cost, chosen) in best.items():
            for index, (_, seconds, _) in enumerate(found):
                total = used + sizes[index]
                if total * MIB <= memory and cost + seconds < following.get(total, (1e9,))[0]:
                    following[total] = cost + seconds, [*chosen, index]
        best = following
    if not best:
        return [full[0]] * count
    return [found[index][0] for index in min(best.values())[1]]


def ascend_speed(measured: Measured, units: dict[str, Unit], memory: int) -> list[tuple[str, ...]]:
    """Its choice for the largest target at which it really fits."""
    found = _undominated(combinations(units))
    transients = [max(o.transient for o in options) for options in measured.options]
    low, high, fitting = 0, memory - measured.static, [(WHOLE,)] * len(measured.layers)
    while high - low > MIB:
        target = (low + high) // 2
        chosen = knapsack(found, target, len(measured.layers))
        options = [[choice(units, each, 0, transients[0], None).option] for each in chosen]
        fits = solver.peak(options, measured.moments, [0] * len(chosen)) <= memory
        low, high, fitting = (target, high, chosen) if fits else (low, target, fitting)
    return fitting


def _undominated(found: list[tuple[tuple[str, ...], float, int]]) -> list[tuple[tuple[str, ...], float, int]]:
    """Combinations that a cheaper and smaller one does not beat, full first."""
    front: list[tuple[tuple[str, ...], float, int]] = []
    for each in sorted(found[1:], key=lambda each: each[1:]):
        if not front or each[2] < front[-1][2]:
            front.append(each)
    return [found[0], *front]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="measured rounds (default 9)")
    rounds = parser.parse_args().rounds
    model, step = trainer()
    measured, units = measure(step)
    found = layers.find(model, 0)
    keep = [0] * len(found)
    plans: dict[str, dict[str, Any]] = {"none": {}, "all": actions.recompute_all(found)}
    limits = {}
    for point in POINTS:
        limit = int(measured.all_peak + point * (measured.peak(keep) - measured.all_peak))
        chosen = measured.solve(limit) or measured.smallest()
        theirs = ascend_speed(measured, units, limit)
        plans[f"plan {point}"] = measured.actions(chosen)
        plans[f"AscendSpeed {point}"] = {
            layer.name: dict.fromkeys(each, "recompute") for layer, each in zip(found, theirs, strict=True)
        }
        limits |= {f"plan {point}": limit, f"AscendSpeed {point}": limit}
    peaks: dict[str, int] = {}

    def peer(name: str) -> Callable[[], float]:
        def run() -> float:
            undo = actions.apply(found, plans[name])
            torch.accelerator.reset_peak_memory_stats()
            seconds = step()
            peaks[name] = torch.accelerator.max_memory_allocated()
            undo()
            return seconds

        return run

    timings = interleave({name: peer(name) for name in plans}, rounds=rounds)
    rows = [
        {
            "recompute": name,
            "memory MiB": f"{limits[name] / MIB:.1f}" if name in limits else "",
            "peak MiB": f"{peaks[name] / MIB:.1f}",
            "time over all": f"{ratio(timings[name], timings['all']):.3f}",
        }
        for name in plans
    ]
    print_table(rows)
    save("plan", rows, unfair=UNFAIR, settings={"rounds": rounds, "layers": LAYERS, "hidden": HIDDEN})


if __name__ == "__main__":
    main()
