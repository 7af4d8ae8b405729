"""Steps of a small LLaMA within a memory: the plan of isthmus, full recompute, none, and what others select.

At three points of memory between full recompute and none, the plan is solved from one measurement; AscendSpeed's
adaptive selective recompute is written here from its documentation: memory of a module without regard to storages
that others keep, no memory for the recompute itself, so its target is lowered until its choice fits, as its search
does by runs out of memory. torch.compile compiles the layers with an activation_memory_budget: the share of the
activations that they may keep; beside each budget is the plan with the same share of its own peak. Goals: at most
the time of full recompute; at least half-way to none at the mid-point; at most the time of AscendSpeed's selection;
at most the slowdown by a budget.
"""

import argparse
import functools
import itertools
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from harness import Timing, interleave, print_table, ratio, save
from torch import nn
from torch._functorch import config as functorch

from isthmus_diagnostics.plan import actions, layers, solver
from isthmus_diagnostics.plan.choices import WHOLE, Unit, choice
from isthmus_diagnostics.plan.measure import Undo
from isthmus_diagnostics.plan.session import Measuring
from isthmus_diagnostics.plan.stage_measurement import Measured, Offload

LAYERS, HIDDEN, INTERMEDIATE, VOCABULARY, BATCH, SEQUENCE = 6, 256, 704, 1024, 4, 256
POINTS = (0.25, 0.5, 0.75)
BUDGETS = (0.75, 0.5, 0.25, 0.0)
KEEP = 1.0  # the budget that keeps what torch.compile keeps by default
UNFAIR = (
    "AscendSpeed's own code measures and searches on NPUs only; its selection here gets the same measurement of the "
    "same step. A compiled step is not an eager one: fusion keeps fewer activations and recomputes cheap operators "
    "whatever the budget, and a recompute within a fused backward costs less than an eager one. So budgets are "
    "compared with the compiled step of budget 1, plans with the eager step without recompute, at an equal share of "
    "these steps' peaks. A budget is solved by estimated FLOPs for a share of the activations, not for a peak. "
    "Peers share one model, whose actions are switched between the steps, so caches are equally warm. "
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
    return Measured.from_ranks([found], Offload.NONE), session.probes[0].units


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
    """Return its choice for the largest target at which it really fits."""
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


def compiled(found: list[layers.Layer], budget: float) -> Callable[[], Undo]:
    """Return a function that lets layers run compiled with a budget and returns its undo."""

    def backend(graph: Any, inputs: Any) -> Any:
        with functorch.patch(activation_memory_budget=budget):
            return torch._TorchCompileInductorWrapper(None, None, None)(graph, inputs)

    forwards = [torch.compile(layer.module.forward, backend=backend) for layer in found]

    def install() -> Undo:
        for layer, forward in zip(found, forwards, strict=True):
            layer.module.forward = forward

        def undo() -> None:
            for layer in found:
                del layer.module.forward

        return undo

    return install


class Peers:
    """Ways to run the layers of one model.

    Attributes:
        peaks: most bytes requested from the allocator at once in the last step, by name.
    """

    def __init__(self, found: list[layers.Layer], step: Callable[[], float]) -> None:
        self.peaks: dict[str, int] = {}
        self._found, self._step = found, step
        self._install: dict[str, Callable[[], Undo]] = {}

    def add(self, name: str, plan: dict[str, Any]) -> int:
        """Add a plan; return its peak."""
        self._install[name] = lambda: actions.apply(self._found, plan)
        self.run(name)
        return self.peaks[name]

    def add_plan(self, name: str, measured: Measured, limit: int) -> None:
        """Add the fastest plan whose measured peak is within a limit, as `isthmus plan recompute` does."""
        cut = 0
        while (choice := measured.solve(limit - cut)) is not None:
            over = self.add(name, measured.actions(choice)) - limit
            if over <= 0:
                return
            cut += over
        self.add(name, measured.actions(measured.smallest_choice()))

    def add_compiled(self, name: str, budget: float) -> int:
        """Add the layers compiled with a budget; return its peak."""
        self._install[name] = compiled(self._found, budget)
        self.run(name)  # compiles
        self.run(name)
        return self.peaks[name]

    def run(self, name: str) -> float:
        """Make a step; return its seconds."""
        undo = self._install[name]()
        torch.accelerator.reset_peak_memory_stats()
        seconds = self._step()
        # Allocated bytes count whole blocks, whose sizes depend on what the cache holds after other peers.
        self.peaks[name] = torch.accelerator.memory_stats()["requested_bytes.all.peak"]
        undo()
        return seconds

    def timings(self, rounds: int) -> dict[str, Timing]:
        """Measure all in turn."""
        return interleave({name: functools.partial(self.run, name) for name in self._install}, rounds=rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="measured rounds (default 9)")
    rounds = parser.parse_args().rounds
    model, step = trainer()
    measured, units = measure(step)
    found = layers.find(model, 0)
    peers = Peers(found, step)
    step()  # the measurement ended within a step
    none = peers.add("none", {})
    least = peers.add("all", actions.recompute_all(found))
    limits: dict[str, int] = {}
    for point in POINTS:
        limit = int(least + point * (none - least))
        theirs = zip(found, ascend_speed(measured, units, limit), strict=True)
        limits |= {f"plan {point}": limit, f"AscendSpeed {point}": limit}
        peers.add_plan(f"plan {point}", measured, limit)
        selected = {layer.name: dict.fromkeys(names, "recompute") for layer, names in theirs}
        peers.add(f"AscendSpeed {point}", selected)
    keep = peers.add_compiled(f"budget {KEEP}", KEEP)
    for budget in BUDGETS:
        limit = int(none * peers.add_compiled(f"budget {budget}", budget) / keep)
        limits[f"plan as budget {budget}"] = limit
        peers.add_plan(f"plan as budget {budget}", measured, limit)
    timings = peers.timings(rounds)
    rows = []
    for name, timing in timings.items():
        own = f"budget {KEEP}" if name.startswith("budget") else "none"
        rows.append(
            {
                "recompute": name,
                "memory MiB": f"{limits[name] / MIB:.1f}" if name in limits else "",
                "peak MiB": f"{peers.peaks[name] / MIB:.1f}",
                "time over all": f"{ratio(timing, timings['all']):.3f}",
                "peak over own none": f"{peers.peaks[name] / peers.peaks[own]:.3f}",
                "time over own none": f"{ratio(timing, timings[own]):.3f}",
            }
        )
    print_table(rows)
    save("plan", rows, unfair=UNFAIR, settings={"rounds": rounds, "layers": LAYERS, "hidden": HIDDEN})


if __name__ == "__main__":
    main()
