"""Does `isthmus profile advise` find what slows a job down, and does following it help?

Plants slowdowns in examples/pretrain_llama.py, profiles it, and checks that each is named with its line. Then runs
the example as it is, with the slowdowns, and with each of them changed as advised: the share of the lost time that
comes back. Unfair if: the advised version does less work than the example. It differs from it in what PLANTS says.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from harness import difference, interleave, print_table, ratio, save

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPT = "pretrain_llama.py"
ROUNDS = 3
SKIPPED = 3  # iterations at the start of a run
FLAGS = [
    "--tiny",
    "--iterations",
    "12",
    "--hidden-size",
    "128",
    "--seq-length",
    "128",
    "--micro-batch-size",
    "4",
]
FLAGS += ["--global-batch-size", "8", "--eval-interval", "99", "--save-interval", "99"]


@dataclass(frozen=True)
class Plant:
    """A slowdown: the example's text, that in its place, and what the advice of a rule makes of it."""

    rule: str
    text: str
    planted: str
    advised: str


_COPY = 'inputs, targets = (part.to("cuda", non_blocking=True) for part in batch)'
_MODEL = "    model = LlamaForCausalLM(config)\n"
_HOOK = """    model = LlamaForCausalLM(config)

    def change_layout(layer, inputs):
        hidden = inputs[0].transpose(1, 2){copy}
        return (hidden.transpose(1, 2), *inputs[1:])

    for layer in model.model.layers:
        layer.register_forward_pre_hook(change_layout)
"""
_LOADER = (
    "    loader = DataLoader(train_windows, batch_sampler=order, pin_memory=True, generator=generator)\n"
)
_SLOW_LOADER = """    class Decoded(type(train_windows)):
        def __getitem__(self, index):
            time.sleep(0.005)
            return super().__getitem__(index)

    train_windows.__class__ = Decoded
    loader = DataLoader(train_windows, batch_sampler=order, pin_memory=True, generator=generator{workers})
"""
PLANTS = (
    Plant("small_copies", _COPY,
          'inputs, targets = (torch.stack([x.to("cuda") for x in part.flatten()]).view_as(part) for part in batch)',
          _COPY),
    Plant("contiguous", _MODEL, _HOOK.format(copy=".contiguous()"), _HOOK.format(copy="")),
    Plant("optimizer", "fused=True)", "foreach=False)", "fused=True)"),
    Plant("garbage_collection", "    norm = torch.nn.utils.clip", "    gc.collect()\n    norm = torch.nn.utils.clip",
          "    norm = torch.nn.utils.clip"),
    Plant("synchronisation", "        total += loss.detach()\n", "        total += loss.item()\n",
          "        total += loss.detach()\n"),
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


def write(folder: Path, version: str, profiled: bool = False) -> str:
    """Write a version of the example ("text", "planted" or "advised") into a folder, and return its source."""
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
    (folder / SCRIPT).write_text(source)
    return source


def run(folder: Path) -> float:
    """Run the example in a folder and return the median of its iterations in seconds."""
    command = [
        sys.executable,
        "-m",
        "isthmus",
        "run",
        "--quiet",
        SCRIPT,
        *FLAGS,
        "--output",
        "out",
        "--overwrite",
    ]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent)}
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (folder / "out" / "metrics.jsonl").read_text().splitlines()]
    times = [row["milliseconds"] for row in rows if "milliseconds" in row]
    return median(times[SKIPPED:]) / 1e3


def named(folder: Path) -> dict[str, str]:
    """Return for each slowdown the line that the advice names, or an empty string if it names none in it."""
    source = write(folder, "planted", profiled=True).splitlines()
    run(folder)
    command = [sys.executable, "-m", "isthmus", "profile", "advise", "trace.json", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent)}
    done = subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE)
    findings = {finding["rule"]: finding for finding in json.loads(done.stdout)}
    return {plant.rule: _named_line(plant, source, findings.get(plant.rule)) for plant in PLANTS}


def _named_line(plant: Plant, source: list[str], finding: dict[str, Any] | None) -> str:
    written = set(plant.planted.splitlines()) - set(plant.text.splitlines())
    planted = {number for number, line in enumerate(source, 1) if line in written or plant.planted in line}
    if plant.rule == "data_loader":  # where the loop takes a batch is where it waits
        planted = {number for number, line in enumerate(source, 1) if "next(batches)" in line}
    for cause in finding["causes"] if finding else []:
        if cause["line"] in planted or any(cause["where"].endswith(f"line {number}") for number in planted):
            return f"{cause['where']}, {cause['time'] / 1e3:.1f} ms"
    return ""


def main() -> None:
    """Measure and print; exit with 1 if a slowdown is not named or less than 80 % of the time comes back."""
    with tempfile.TemporaryDirectory() as temporary:
        folders = {version: Path(temporary) / version for version in ("text", "planted", "advised")}
        for version, folder in folders.items():
            write(folder, version)
        found = named(Path(temporary) / "profiled")
        peers = {version: lambda folder=folder: run(folder) for version, folder in folders.items()}
        times = interleave(peers, rounds=ROUNDS, warm_up=0)
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
    main()
