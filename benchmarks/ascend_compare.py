"""Isthmus and the vendor's torch_npu on the same runtime: calls, a training step, memory, all-reduce, import.

Peers, each in a process of its own, measured in turn: the ascend driver of Isthmus; torch_npu with each setting of
its task queue. Native CPU is what the time added to a call is counted from. Goals: the time that Isthmus adds to a
call at most 0.5x of what torch_npu adds with the setting that is best for the operator; a step at most 0.9x; reserved
memory at most torch_npu's; an all-reduce of 4 KB and of 64 MB at most 1.0x; the import at most 0.5x.

Both sides call one runtime: the reference runtime of `isthmus ascend`, or the vendor's on cards. `make
ascend-compare` runs this, which writes docs/results/ascend.md too.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from workers import Worker

ROOT = Path(__file__).resolve().parents[1]
NPU = ROOT / "build/torch_npu"
PAGE = ROOT / "docs/results/ascend.md"
OURS = "isthmus"
QUEUES = {f"torch_npu, queue {i}": str(i) for i in range(3)}
OPERATORS = ("add", "mul", "mm", "softmax", "view", "empty")
SIZES = {"4 KB": 2**10, "64 MB": 2**24}  # elements of float32
GOALS = {"call": 0.5, "step": 0.9, "memory": 1.0, "all-reduce": 1.0, "import": 0.5}
UNFAIR = (
    "The task queue of torch_npu returns before its second thread has called the runtime: hence each loop ends with "
    "a synchronization, and the best setting counts. Peers that poll while another is measured: hence they are "
    "stopped then. Autograd or another number of threads on one side only: hence no gradients around calls, one "
    "thread for calls and all cores for steps. On the reference runtime operators are CPU kernels, the same for both."
)

BOUND = (
    "What bounds the step: 70 % of the time of the thread that computes are matrix products of one library (perf, "
    "2026-11-27), for both sides. The same step on CPU tensors, without any device, took 0.90 of torch_npu's time "
    "then."
)


def calls(device: str) -> dict[str, Callable[[], object]]:
    """Return calls of the operators on small tensors."""
    import torch

    one, matrix = torch.ones(1, device=device), torch.ones(8, 8, device=device)
    return {
        "add": lambda: one + one,
        "mul": lambda: one * one,
        "mm": lambda: matrix @ matrix,
        "softmax": lambda: matrix.softmax(-1),
        "view": lambda: matrix.view(64),
        "empty": lambda: torch.empty(1, device=device),
    }


class Side:
    """Does what is asked on one side."""

    def __init__(self, device: str) -> None:
        import torch

        if device == "npu":
            import torch_npu  # noqa: F401
        torch.set_flush_denormal(True)  # for this thread and those that it starts, like the number of threads
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        self._device, self._torch = device, torch
        self._calls = calls(device)
        self._step: Callable[[], float] | None = None

    def synchronize(self) -> None:
        """Wait for the device."""
        if self._device != "cpu":
            self._torch.accelerator.synchronize()

    def call(self, name: str, count: int) -> float:
        """Return the seconds of a call of an operator."""
        function = self._calls[name]
        self._torch.set_num_threads(1)
        with self._torch.no_grad():
            start = time.perf_counter()
            for _ in range(count):
                function()
            self.synchronize()
            return (time.perf_counter() - start) / count

    def step(self) -> list[float]:
        """Do a training step; return its seconds, its loss and the bytes reserved at most."""
        if self._step is None:
            self._step = self._training()
        start = time.perf_counter()
        loss = self._step()
        return [time.perf_counter() - start, loss, self._torch.accelerator.max_memory_reserved()]

    def _training(self) -> Callable[[], float]:
        from train_step import BATCH, SEQUENCE, VOCABULARY, llama

        torch = self._torch
        model = llama().to(self._device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        ids = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE)).to(self._device)

        def step() -> float:
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return float(loss.item())

        return step

    def join(self, store: str, rank: int) -> None:
        """Join the two ranks that meet at a file."""
        self._torch.accelerator.set_device_index(rank)
        backend = "hccl" if self._device == "npu" else None
        self._torch.distributed.init_process_group(
            backend, init_method=f"file://{store}", rank=rank, world_size=2
        )

    def all_reduce(self, elements: int, count: int) -> float:
        """Return the seconds of an all-reduce; both ranks call it."""
        dist = self._torch.distributed
        tensor = self._torch.ones(elements, device=self._device)
        for _ in range(3):
            dist.all_reduce(tensor)
        self.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            dist.all_reduce(tensor)
        self.synchronize()
        return (time.perf_counter() - start) / count

    def serve(self) -> None:
        """Answer the requests of standard input, one a line: the name of a method, and its arguments."""
        for line in sys.stdin:
            name, *arguments = json.loads(line)
            print(json.dumps(getattr(self, name)(*arguments)), flush=True)


def environment(name: str) -> dict[str, str]:
    """Return the variables of a peer's process."""
    from isthmus_ascend.environment import variables

    found = variables()
    paths = [str(ROOT), *([str(NPU)] if name in QUEUES else [])]
    found["PYTHONPATH"] = os.pathsep.join(paths)
    found["ISTHMUS_DRIVER"] = "ascend" if name == OURS else "none"
    found["TASK_QUEUE_ENABLE"] = QUEUES.get(name, "0")
    found["ISTHMUS_ASCEND_DEVICES"] = "2"
    return found


LOST = "ascend_compare: %s ended with code {code}; see its error above"


class Peer(Worker):
    """A worker's process, stopped except while it answers: threads that poll would slow the others."""

    def __init__(self, name: str) -> None:
        device = "cpu" if name == "cpu" else "chip" if name == OURS else "npu"
        super().__init__(__file__, LOST % name, "--worker", device, **environment(name))

    def ask(self, *request: object) -> None:
        """Send a request."""
        self.process.send_signal(signal.SIGCONT)
        super().ask(*request)

    def answer(self) -> Any:
        """Return the answer to the oldest request."""
        answer = super().answer()
        self.process.send_signal(signal.SIGSTOP)
        return answer

    def do(self, *request: object) -> Any:
        """Return the answer to a request."""
        self.ask(*request)
        return self.answer()

    def close(self) -> None:
        """End the process."""
        self.process.send_signal(signal.SIGCONT)
        super().close()


def best(ratios: dict[str, float]) -> str:
    """Return the peer that is hardest to beat."""
    return max(ratios, key=lambda name: ratios[name])


def measure_calls(peers: dict[str, Peer], rounds: int, count: int) -> list[dict[str, Any]]:
    """Return a row for each operator: microseconds, and what Isthmus adds to native CPU over what torch_npu adds."""
    from harness import difference, interleave

    rows = []
    for operator in OPERATORS:
        measured: dict[str, Callable[[], float]] = {
            name: partial(peer.do, "call", operator, count) for name, peer in peers.items()
        }
        times = interleave(measured, rounds=rounds)
        added = {name: difference(times[name], times["cpu"]) * 1e6 for name in (OURS, *QUEUES)}
        queue = min(QUEUES, key=lambda name: added[name])
        rows.append(
            {
                "what": f"call of {operator}",
                "unit": "us added to native CPU",
                OURS: added[OURS],
                **{name: added[name] for name in QUEUES},
                "ratio": max(added[OURS], 0) / added[queue],
                "goal": GOALS["call"],
            }
        )
    return rows


def measure_steps(rounds: int) -> list[dict[str, Any]]:
    """Return the rows of a step's time and of the memory that it reserves.

    Peers that have done nothing else: a stream's thread keeps the number of threads with which it computed first. The
    first steps are not measured: the allocator of Isthmus arranges its memory anew in the third.
    """
    from harness import interleave, ratio

    names = (OURS, *QUEUES)
    peers = {name: Peer(name) for name in names}
    answers: dict[str, list[list[float]]] = {name: [] for name in names}

    def asked(name: str) -> Callable[[], float]:
        def measure() -> float:
            answers[name].append(peers[name].do("step"))
            return answers[name][-1][0]

        return measure

    times = interleave({name: asked(name) for name in names}, rounds=rounds, warm_up=5)
    for peer in peers.values():
        peer.close()
    losses = {name: [loss for _, loss, _ in answers[name]] for name in names}
    for name in QUEUES:
        for ours, theirs in zip(losses[OURS], losses[name], strict=True):
            if abs(ours - theirs) > 1e-4 * theirs:
                raise SystemExit(f"ascend_compare: the losses are {ours} on Isthmus and {theirs} on {name}")
    reserved = {name: max(each[2] for each in answers[name]) / 2**20 for name in names}
    queue = best({name: ratio(times[OURS], times[name]) for name in QUEUES})
    return [
        {
            "what": "LLaMA training step",
            "unit": "ms",
            **{name: times[name].median * 1e3 for name in names},
            "ratio": ratio(times[OURS], times[queue]),
            "goal": GOALS["step"],
        },
        {
            "what": "memory reserved in it",
            "unit": "MiB",
            **reserved,
            "ratio": reserved[OURS] / min(reserved[name] for name in QUEUES),
            "goal": GOALS["memory"],
        },
    ]


def measure_all_reduce(rounds: int, folder: str) -> list[dict[str, Any]]:
    """Return the rows of all-reduces between two ranks, which meet at files of the folder."""
    from harness import interleave, ratio

    groups = {name: [Peer(name) for _ in range(2)] for name in (OURS, *QUEUES)}

    def together(name: str, *requests: Sequence[object]) -> list[Any]:
        for peer, request in zip(groups[name], requests, strict=True):
            peer.ask(*request)
        return [peer.answer() for peer in groups[name]]

    for i, name in enumerate(groups):
        together(name, *(["join", f"{folder}/{i}", rank] for rank in range(2)))

    def asked(name: str, elements: int) -> Callable[[], float]:
        request = ["all_reduce", elements, 5 if elements > 2**20 else 200]
        return lambda: max(together(name, request, request))

    rows = []
    for size, elements in SIZES.items():
        times = interleave({name: asked(name, elements) for name in groups}, rounds=rounds)
        queue = best({name: ratio(times[OURS], times[name]) for name in QUEUES})
        rows.append(
            {
                "what": f"all-reduce of {size}, two ranks",
                "unit": "us",
                **{name: times[name].median * 1e6 for name in groups},
                "ratio": ratio(times[OURS], times[queue]),
                "goal": GOALS["all-reduce"],
            }
        )
    for group in groups.values():
        for peer in group:
            peer.close()
    return rows


IMPORT = "import time; start = time.process_time(); import torch; {}; print(time.process_time() - start)"


def measure_import(rounds: int) -> dict[str, Any]:
    """Return the row of the CPU time that each side adds to `import torch`."""
    from harness import difference, in_process, interleave

    peers = {}
    for name in ("cpu", OURS, *QUEUES):
        code = IMPORT.format("import torch_npu" if name in QUEUES else "pass")
        peers[name] = in_process("-c", code, **environment(name))
    times = interleave(peers, rounds=rounds, warm_up=0)
    added = {name: difference(times[name], times["cpu"]) * 1e3 for name in (OURS, *QUEUES)}
    return {
        "what": "import",
        "unit": "ms of CPU time added to `import torch`",
        **added,
        "ratio": added[OURS] / min(added[name] for name in QUEUES),
        "goal": GOALS["import"],
    }


def page(rows: list[dict[str, Any]], facts: dict[str, Any]) -> str:
    """Return docs/results/ascend.md."""
    names = (OURS, *QUEUES)
    lines = [
        "# Isthmus and torch_npu on one runtime",
        "",
        f"Made by `make ascend-compare`: the ascend driver of Isthmus and the vendor's torch_npu 2.13.0, each in a "
        f"process of its own, on the reference runtime of `isthmus ascend` ({facts['cpu']}, {facts['cores']} cores, "
        f"{facts['date']}). No card was measured. A ratio is of Isthmus over the setting of torch_npu's task queue "
        "that is best for the line, by the median over the rounds.",
        "",
        f"| what | unit | {' | '.join(names)} | ratio | goal |",
        f"| --- | --- |{' --- |' * (len(names) + 2)}",
        *(
            f"| {row['what']} | {row['unit']} | {' | '.join(f'{row[name]:.2f}' for name in names)} "
            f"| {row['ratio']:.2f} | {row['goal']} |"
            for row in rows
        ),
        "",
        BOUND,
        "",
        f"What would make it unfair: {UNFAIR[0].lower()}{UNFAIR[1:]}",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="measured rounds (default 9)")
    parser.add_argument(
        "--calls", type=int, default=5000, help="calls of an operator and round (default 5000)"
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        Side(options.worker).serve()
        return
    if not NPU.is_dir():
        raise SystemExit("ascend_compare: build/torch_npu is absent; `make ascend-compare` installs it")
    from harness import machine, print_table, save

    from isthmus_common.files import write_file

    peers = {name: Peer(name) for name in ("cpu", OURS, *QUEUES)}
    rows = measure_calls(peers, options.rounds, options.calls)
    for peer in peers.values():
        peer.close()
    rows += measure_steps(options.rounds)
    with tempfile.TemporaryDirectory() as folder:
        rows += measure_all_reduce(options.rounds, folder)
    rows.append(measure_import(options.rounds))
    print_table(rows)
    settings = {"rounds": options.rounds, "calls": options.calls}
    print(f"saved {save('ascend_compare', rows, unfair=UNFAIR, settings=settings)}")
    write_file(PAGE, page(rows, machine()).encode())
    print(f"written: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
