"""``python -m isthmus.launch.agent``: starts the ranks of a node by torchrun's agent and watches over them.

It writes their output to files, shows the requested part of it on the terminal, and names the rank that failed first.
"""

import argparse
import contextlib
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isthmus.launch.failures import Failure
from isthmus.launch.ranks import check_shown, threads
from isthmus.launch.root_cause import summary
from isthmus.launch.watch import Rank, Watch
from isthmus_common.files import make_file
from isthmus_common.training.model_arguments import ModelArguments
from isthmus_common.training.progress import Progress
from isthmus_common.training.terminal import Terminal

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")


def main(arguments: list[str]) -> int:
    """Run a job's ranks on this node; return the exit status, or end by the signal that ended the job."""
    options, torchrun, program = _parse(arguments)
    try:
        ranks = _ranks(options.nproc)
        check_shown(options.shown, ranks)
        return Node(options, ranks, program).run([f"--nproc-per-node={ranks}", *torchrun])
    except KeyboardInterrupt:  # before the ranks were started
        return _end_by(signal.SIGINT)
    except (RuntimeError, ValueError) as error:
        print(f"isthmus: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str], list[str]]:
    """Options of the agent, of torchrun, and the program with its arguments."""
    parser = argparse.ArgumentParser(prog="isthmus run")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--temporary", action="store_true", help="remove the folder unless the job fails")
    parser.add_argument("--nproc", required=True)
    parser.add_argument("--shown", default="")
    parser.add_argument("--peak-tflops", type=float)
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--quiet", action="store_true")
    split = arguments.index("--")
    rest = arguments[split + 1 :]
    first = next(i for i, each in enumerate(rest) if not each.startswith("--"))
    return parser.parse_args(arguments[:split]), rest[:first], rest[first:]


def _ranks(nproc: str) -> int:
    """Number of ranks on this node; imports torch, with its devices only if they have to be counted."""
    if nproc != "auto":
        loads = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD")
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        import torch

        os.environ.pop("TORCH_DEVICE_BACKEND_AUTOLOAD")
        if loads is not None:
            os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = loads
        return int(nproc)
    import torch

    count = torch.accelerator.device_count()
    if not count:
        raise ValueError("--nproc auto: no device available; `isthmus doctor` says why, or give a number")
    os.environ.setdefault("OMP_NUM_THREADS", threads(count))
    return count


class Node:
    """The ranks of this node, from their start to their end."""

    def __init__(self, options: argparse.Namespace, ranks: int, program: list[str]) -> None:
        self.folder: Path = options.folder
        self.temporary: bool = options.temporary
        self.quiet: bool = options.quiet
        self.terminal = Terminal(options.progress)
        progress = Progress(ModelArguments.read(program), options.peak_tflops)
        self.watch = Watch(self.terminal, progress, options.shown)
        self.program = program
        self.status = 0
        self.has_failed = False  # in any attempt; reports name files of the folder
        self.began = time.time()

    def run(self, torchrun: list[str]) -> int:
        """Run them with these options of torchrun; return the status of the root-cause rank, or 128 + its signal."""
        from isthmus.launch import elastic

        os.environ["ISTHMUS_SHIM"] = "1"
        os.environ.setdefault("PYTHONFAULTHANDLER", "1")  # a rank that crashes writes its stack
        self._log_to_file()
        if not self.quiet and "--nnodes=1" not in torchrun:
            self.terminal.print_line("waiting for the other nodes")
        agent = elastic.Agent(
            [*torchrun, *self.program],
            self.folder,
            self._on_started,
            self.watch.request_stacks,
            self._report_failure,
            self._failed_elsewhere,
        )
        received = None
        with self.watch:
            try:
                if not agent.run_ranks():
                    self.status = self.status or 1
            except elastic.SignalException as error:
                received = error.sigval
                with _ignored_signals():
                    self.watch.end_all()
        if received is not None:
            name = signal.Signals(received).name
            self.terminal.print_line(
                f"{name}: all ranks of this node have ended; their output is in {self.folder}"
            )
            return _end_by(received)
        if self.temporary and not (self.has_failed or self.status):
            shutil.rmtree(self.folder, ignore_errors=True)
        return self.status

    def _log_to_file(self) -> None:
        """Write torchrun's log to a file, to keep the terminal for the job."""
        path = self.folder / "launcher.log"
        make_file(path)
        handler = logging.FileHandler(path)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger = logging.getLogger("torch.distributed.elastic")
        logger.addHandler(handler)
        logger.propagate = False

    def _on_started(self, ranks: list[Rank], attempt: int) -> None:
        self.status = 0
        self.watch.start(ranks)
        if not self.quiet:
            again = f" (attempt {attempt})" if attempt else ""
            numbers = (
                f"ranks {ranks[0].rank} to {ranks[-1].rank}" if len(ranks) > 1 else f"rank {ranks[0].rank}"
            )
            where = "" if self.temporary else f": output in {self.folder}"
            self.terminal.print_line(f"{numbers} of {ranks[0].world_size}{again}{where}")

    def _report_failure(self, failures: dict[int, Any], restarts: int) -> str:
        """Report a failed attempt, given torchrun's failures by local rank; return the first line of the report."""
        self.watch.drain()
        self.has_failed = True
        found = [
            Failure.read(
                rank, failures.get(rank.local_rank), self.watch.ended_at(rank), self.watch.was_stopped(rank)
            )
            for rank in self.watch.ranks
        ]
        self.watch.end_all()
        text, self.status = summary(found, self.watch.iteration(), time.time() - self.began)
        self.terminal.block(text)
        if restarts:
            self.terminal.print_line(f"restarting all ranks; {restarts} restart{'s' * (restarts > 1)} left")
        return text.splitlines()[0]

    def _failed_elsewhere(self, said: str, again: bool) -> None:
        """Report an attempt that failed on another node, with that node's report and whether all ranks restart."""
        self.watch.drain()
        self.status, self.has_failed = 1, True
        what = said or "another node joined, left or restarted"
        where = f"; output of this node in {self.folder}" if self.temporary else ""
        then = "restarting all ranks" if again else "ending the ranks of this node"
        self.terminal.block(f"{what}; {then}{where}")


@contextlib.contextmanager
def _ignored_signals() -> Iterator[None]:
    """Ignore signals while the last ranks are ended."""
    former = {each: signal.signal(getattr(signal, each), signal.SIG_IGN) for each in _SIGNALS}
    try:
        yield
    finally:
        for each, handler in former.items():
            signal.signal(getattr(signal, each), handler)


def _end_by(number: int) -> int:
    """End this process by a signal with its default action."""
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
