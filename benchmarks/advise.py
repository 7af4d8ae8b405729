"""Does `isthmus profile advise` find what slows a job down, and does following it help?

Plants slowdowns in examples/pretrain_llama.py, profiles it, and checks that each is named with its line. Then runs
the example as it is, with the slowdowns, and with each of them changed as advised: the share of the lost time that
comes back. Unfair if: the advised version does less work than the example. It differs from it in what PLANTS says.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Timing, difference, interleave, print_table, ratio, save

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPT = "pretrain_llama.py"
ROUNDS = 25
VERSIONS = ("text", "planted", "advised")
FLAGS = (
    "--tiny --no-bf16 --iterations 12 --hidden-size 128 --vocab-size 4096 --seq-length 128 --micro-batch-size 4"
    " --global-batch-size 8 --eval-interval 99 --save-interval 99"
).split()


@dataclass(frozen=True)
class Plant:
    """A slowdown: the example's text, what is planted in its place, and what the advice of a rule makes of it."""

    rule: str
    text: str
    planted: str
    advised: str


_COPY = 'inputs, targets = (part.to("cuda", non_blocking=True) for part in batch)'
_LOADER = (
    "    loader = DataLoader(train_windows, batch_sampler=order, pin_memory=True, generator=generator)\n"
)
_SLOW_LOADER = """    class Decoded(type(train_windows)):
        def __getitem__(self, index):
            time.sleep(0.01)
            return super().__getitem__(index)

    train_windows.__class__ = Decoded
    loader = DataLoader(train_windows, batch_sampler=order, pin_memory=True, generator=generator{workers})
"""
PLANTS = (
    Plant("small_copies", _COPY,
          'inputs, targets = (torch.cat([x.to("cuda") for x in part.flatten().split(4)]).view_as(part) '
          "for part in batch)",
          _COPY),
    Plant("optimizer", "fused=True)", "foreach=False)", "fused=True)"),
    Plant("garbage_collection", "    norm = torch.nn.utils.clip", "    gc.collect()\n    norm = torch.nn.utils.clip",
          "    norm = torch.nn.utils.clip"),
    Plant("synchronisation", "        total += loss.detach()\n", "        total += loss.item()\n",
          "        total += loss.detach()\n"),
    Plant("contiguous", "F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())",
          "F.cross_entropy(logits.float().transpose(1, 2).contiguous(), targets)",
          "F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())"),
    Plant("data_loader", _LOADER, _SLOW_LOADER.format(workers=""),
          _SLOW_LOADER.format(workers=", num_workers=2, prefetch_factor=4")),
)  # fmt: skip

_PROFILER = """
from torch.profiler import ProfilerActivity, profile, schedule
PROFILER = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True, with_stack=True,
    schedule=schedule(wait=2, warmup=1, active=4, repeat=1),
    on_trace_ready=lambda profiler: profiler.export_chrome_trace("trace.json"))
PROFILER.start()

RANK = """
_TIMED = "        times.append(time.perf_counter() - start)\n"


def write(folder: Path, version: str, name: str, profiled: bool = False) -> str:
    """Write a version of the example into a folder under a name, and return its source."""
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    source = (EXAMPLES / SCRIPT).read_text().replace("import argparse\n", "import argparse\nimport gc\n", 1)
    for plant in PLANTS:
        if plant.text not in source:
            raise ValueError(f"{SCRIPT} has no {plant.text!r}; adapt PLANTS")
        source = source.replace(plant.text, getattr(plant, version))
    if profiled:
        source = source.replace("\nRANK = ", _PROFILER, 1).replace(
            _TIMED, f"{_TIMED}        PROFILER.step()\n"
        )
    (folder / name).write_text(source)
    return source


def measure(folder: Path) -> None:
    """Train each version in turn, one iteration a round, and write the times as JSON; runs under `isthmus run`."""
    sys.path.insert(0, str(folder))
    sys.argv = [SCRIPT, *FLAGS, "--output", str(folder / "out")]
    (folder / "out").mkdir()
    peers = {version: iteration(importlib.import_module(version)) for version in VERSIONS}
    times = interleave(peers, rounds=ROUNDS)
    (folder / "times.json").write_text(json.dumps({name: timing.seconds for name, timing in times.items()}))


def iteration(example: Any) -> Callable[[], float]:
    """Set a version of the example up to where it iterates, and return a function that times one iteration."""
    ready: list[Any] = []
    example.iterate = lambda run, batches, first, last: ready.append((run, batches))
    example.finish = lambda *arguments: None
    example.train(example.parse_args(1))
    run, batches = ready[0]

    def once() -> float:
        start = time.perf_counter()
        example.train_step(run.wrapped, run.optimizer, batches, run.args)
        return time.perf_counter() - start

    return once


def isthmus(folder: Path, *arguments: str) -> str:
    """Run a command of isthmus in a folder and return what it printed."""
    command = [sys.executable, "-m", "isthmus", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def named(folder: Path) -> dict[str, str]:
    """Return for each slowdown the line that the advice names, or an empty string if it names none in it."""
    source = write(folder, "planted", SCRIPT, profiled=True).splitlines()
    isthmus(folder, "run", "--quiet", SCRIPT, *FLAGS, "--output", "out")
    printed = isthmus(folder, "profile", "advise", "trace.json", "--json")
    findings = {finding["rule"]: finding for finding in json.loads(printed)}
    return {plant.rule: _named_line(plant, source, findings.get(plant.rule)) for plant in PLANTS}


def _named_line(plant: Plant, source: list[str], finding: dict[str, Any] | None) -> str:
    written = set(plant.planted.splitlines()) - set(plant.text.splitlines())
    planted = {number for number, line in enumerate(source, 1) if line in written or plant.planted in line}
    if plant.rule == "data_loader":  # the loop waits where it takes a batch
        planted = {number for number, line in enumerate(source, 1) if "next(batches)" in line}
    for cause in finding["causes"] if finding else []:
        if cause["line"] in planted or any(cause["where"].endswith(f"line {number}") for number in planted):
            return f"{cause['where']}, {cause['time'] / 1e3:.1f} ms"
    return ""


def main() -> None:
    """Measure and print; exit with 1 if a slowdown is not named or less than 80 % of the time comes back."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        found = named(folder / "profiled")
        for version in VERSIONS:
            write(folder / "measured", version, f"{version}.py")
        isthmus(folder, "run", "--quiet", __file__, str(folder / "measured"))
        seconds = json.loads((folder / "measured" / "times.json").read_text())
    times = {version: Timing(seconds=taken) for version, taken in seconds.items()}
    lost = difference(times["planted"], times["text"])
    recovered = difference(times["planted"], times["advised"]) / lost
    rows = [{"slowdown": rule, "named": where or "NOT NAMED"} for rule, where in found.items()]
    print_table(rows)
    print(
        f"planted / text: {ratio(times['planted'], times['text']):.2f}, recovered: {recovered:.0%} of the lost time"
    )
    summary = {"slowdown": "all", "named": "", "recovered": recovered, "lost_seconds": lost}
    save("advise", [*rows, summary], unfair=__doc__.split("Unfair if: ")[1].strip())
    sys.exit(not all(found.values()) or recovered < 0.8)


if __name__ == "__main__":
    measure(Path(sys.argv[1])) if sys.argv[1:] else main()
