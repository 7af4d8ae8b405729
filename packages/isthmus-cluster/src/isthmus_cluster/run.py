"""``isthmus cluster run``: starts ``isthmus run`` on every host, merges the output, and ends all hosts together."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO

from isthmus_cluster import remote
from isthmus_cluster.inventory import Host
from isthmus_cluster.render.job import TORCHRUN_PORT, Job
from isthmus_common.text import count, signal_name
from isthmus_common.training.model_arguments import ModelArguments
from isthmus_common.training.progress import Progress
from isthmus_common.training.terminal import Terminal

_GRACE = 20.0  # seconds that the other hosts have after one has failed; they hear of it by themselves
_START_GRACE = 3.0  # the same if its ranks had not started: the others wait for it, or fail likewise
_PATIENCE = 60.0  # seconds from a signal to the end of the connections
_PERIOD = 0.1
_RANK = re.compile(r"\[rank (\d+)\] ")
_STARTED = re.compile(r"isthmus: ranks? \d+ (?:to \d+ )?of ")
_CAUSE = re.compile(
    r"isthmus: (rank (\d+) (?:failed|did not reach|ended with exit status).*\(process \d+ on .*)"
)
_CONSEQUENCE = ("  its own error says", "  its operation timed out")  # texts of isthmus.launch.root_cause


@dataclass
class Node:
    """A host while the job runs on it.

    Attributes:
        host: where.
        first: its first rank.
        process: the local process that runs the command there.
        has_launcher: its launcher has written a line.
        has_ranks: its launcher has started the ranks.
        cause: its report of a rank of its own that made the job fail; "" without one.
        is_consequence: that rank's own error says that ranks of other hosts were missing.
        error: the last line of its launcher, or of what stands before it, such as ssh.
        failed_at: when it reported that, or ended, in seconds since the epoch.
        status: exit status; None while it runs.
    """

    host: Host
    first: int
    process: subprocess.Popen[bytes]
    has_launcher: bool = False
    has_ranks: bool = False
    cause: str = ""
    is_consequence: bool = False
    error: str = ""
    failed_at: float = 0.0
    status: int | None = None
    pending: dict[int, bytes] = field(default_factory=dict)

    def has_rank(self, number: int) -> bool:
        """Whether a rank runs on the host; launchers repeat the reports of others."""
        return self.first <= number < self.first + len(self.host.cards)

    def send(self, number: int) -> None:
        """Send a signal to the command on the host."""
        self.write(f"{signal.Signals(number).name}\n".encode())

    def write(self, data: bytes) -> None:
        """Write to its standard input; nothing if that is closed."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def close(self) -> None:
        """Let the host end the command: its standard input ends."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()


def commands(job: Job, python: str, options: list[str]) -> list[list[str]]:
    """Return the local command line for each host, which reads :func:`environments` first.

    Args:
        job: what to run.
        python: Python with Isthmus, on every host.
        options: further options of ``isthmus run``.
    """
    hosts, port = job.inventory.hosts, job.port or TORCHRUN_PORT
    found = []
    for number, host in enumerate(hosts):
        nodes = {
            "nproc": len(host.cards),
            "nnodes": len(hosts),
            "node-rank": number,
            "master-addr": job.master,
            "master-port": port,
        }
        words = [word for name, value in nodes.items() for word in (f"--{name}", str(value))]
        run = [python, "-m", "isthmus", "run", *words, *options, *job.program]
        directory = [f"--directory={job.directory}"] if job.directory else []
        node = [python, "-m", "isthmus_cluster.node", *directory, "--", *run]
        found.append(remote.command(host, node, job.environment(host, port)))
    return found


def environments(job: Job) -> list[bytes]:
    """Return the first line of standard input for each host: an ``export`` command for the shell."""
    port = job.port or TORCHRUN_PORT
    return [remote.environment_line(job.environment(host, port)) for host in job.inventory.hosts]


def run(job: Job, python: str, options: list[str], *, progress: bool = False) -> int:
    """Run a job on all hosts of its inventory; return its exit status.

    Output of ranks is shown as it comes, with one progress line. When a host fails, the others are ended, and the
    report of the rank that failed first is repeated at the end. A signal is passed on to all hosts.
    """
    name = ["--rdzv-id", uuid.uuid4().hex]  # so that hosts do not join a job that uses the same port
    return supervise(job, commands(job, python, [*name, *options]), environments(job), Terminal(progress))


def supervise(job: Job, lines: list[list[str]], inputs: list[bytes], terminal: Terminal) -> int:
    """Run a command for each host until all have ended; return the exit status of the job.

    Args:
        job: what runs.
        lines: command line for each host.
        inputs: what its standard input begins with.
        terminal: where output goes.
    """
    ranks = Progress(ModelArguments.read(job.program))
    ranks.start(job.inventory.world_size, list(range(job.inventory.world_size)))
    nodes: list[Node] = []
    with _signals() as received, selectors.DefaultSelector() as selector:
        try:
            first = 0
            for host, line, data in zip(job.inventory.hosts, lines, inputs, strict=True):
                nodes.append(_start(host, first, line, selector))
                nodes[-1].write(data)
                first += len(host.cards)
            _watch(nodes, selector, received, terminal, ranks)
        finally:
            _end(nodes)
    terminal.end()
    return _status(nodes, received, terminal)


def _start(host: Host, first: int, line: list[str], selector: selectors.BaseSelector) -> Node:
    """Start a command in a session of its own: Ctrl-C reaches only this process, which passes it on."""
    process = subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    node = Node(host, first, process)
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        os.set_blocking(stream.fileno(), False)
        selector.register(stream, selectors.EVENT_READ, node)
    return node


def _watch(
    nodes: list[Node],
    selector: selectors.BaseSelector,
    received: list[int],
    terminal: Terminal,
    ranks: Progress,
) -> None:
    passed, deadline, is_closed, has_failed = 0, float("inf"), False, False
    while any(node.status is None for node in nodes) or selector.get_map():
        for key, _ in selector.select(_PERIOD):
            stream, node = key.fileobj, key.data
            if not _read(stream, node, terminal, ranks):  # type: ignore[arg-type]
                selector.unregister(stream)
        now = time.monotonic()
        for number in received[passed:]:
            if not passed:
                terminal.print_line(_describe_ending(number, nodes))
            for node in nodes:
                node.send(number)
            passed, deadline = passed + 1, min(deadline, now + _PATIENCE)
        for node in nodes:
            if node.status is None and (status := node.process.poll()) is not None:
                node.status, node.failed_at = status, node.failed_at or time.time()
                if status:
                    deadline = min(deadline, now + (_GRACE if node.has_ranks else _START_GRACE))
        has_failed = has_failed or bool(received) or _tell_failure(nodes, terminal)
        alive = sum(len(node.host.cards) for node in nodes if node.status is None)
        terminal.status(ranks.text(time.time(), alive, {}), is_new=False)
        if now > deadline:
            if is_closed:
                return
            for node in nodes:
                node.close()
            is_closed, deadline = True, now + _PATIENCE


def _describe_ending(number: int, nodes: list[Node]) -> str:
    again = "; Ctrl-C again kills them" if number == signal.SIGINT else ""
    return f"{signal_name(number)}: ending the ranks on {count(len(nodes), 'host')}{again}"


def _tell_failure(nodes: list[Node], terminal: Terminal) -> bool:
    """Name the first host that failed, if others still run; return whether there is one that failed."""
    failed = next((node for node in nodes if node.cause or node.status), None)
    if failed and any(node.status is None for node in nodes):
        terminal.print_line(f"{failed.host.name} failed; ending the ranks on all hosts")
    return failed is not None


def _read(stream: IO[bytes], node: Node, terminal: Terminal, ranks: Progress) -> bool:
    """Show the new lines of a stream; return whether it goes on."""
    number = stream.fileno()
    data = stream.read()
    if data is None:
        return True
    *found, rest = (node.pending.pop(number, b"") + data).split(b"\n")
    if rest and data:
        node.pending[number] = rest
    elif rest:
        found.append(rest)
    for line in found:
        _show(line.decode("utf-8", "replace"), stream is node.process.stderr, node, terminal, ranks)
    return bool(data)


def _show(line: str, is_error: bool, node: Node, terminal: Terminal, ranks: Progress) -> None:
    rank = _RANK.match(line)
    now = time.time()
    reported = ranks.note_line(
        int(rank[1]) if rank else node.first, line[rank.end() :] if rank else line, now
    )
    if reported.is_new and terminal.prints_status:
        terminal.status(ranks.text(now, ranks.world_size, {}), is_new=True)
    if (cause := _CAUSE.match(line)) and not node.cause and node.has_rank(int(cause[2])):
        node.cause, node.failed_at = cause[1], now
    node.is_consequence |= bool(node.cause) and line.startswith(_CONSEQUENCE)
    if is_error and (line.startswith("isthmus: ") or not node.has_launcher):
        node.error = "" if _STARTED.match(line) else line.removeprefix("isthmus: ")
    node.has_ranks |= bool(_STARTED.match(line))
    if line.startswith("isthmus: "):
        node.has_launcher = True
        # Each launcher knows its own host only; the last line says which rank of all failed first.
        line = line.replace(" failed first", " failed", 1)
        line = f"isthmus: {node.host.name}: {line.removeprefix('isthmus: ')}"
    elif is_error and not node.has_launcher and not rank:
        line = f"{node.host.name}: {line}"
    if not (reported.is_iteration and terminal.prints_status):
        terminal.line(is_error, line)


def _end(nodes: list[Node]) -> None:
    """End what still runs: the hosts end their commands as their connection closes."""
    for node in nodes:
        node.close()
    for node in nodes:
        try:
            node.process.wait(0 if node.status is not None else 2 * _PERIOD)
        except subprocess.TimeoutExpired:
            node.process.kill()
            node.process.wait()
        for stream in (node.process.stdout, node.process.stderr):
            assert stream is not None
            stream.close()


def _status(nodes: list[Node], received: list[int], terminal: Terminal) -> int:
    if received:
        terminal.print_line(f"{signal_name(received[0])}: ended the ranks on {count(len(nodes), 'host')}")
        return 128 + received[0]
    failed = sorted((node for node in nodes if node.status != 0), key=_guilt)
    if not failed:
        return 0
    guilty = failed[0]
    status = guilty.status if guilty.status is not None else 1
    how = f"signal {-status}" if status < 0 else f"exit status {status}"
    why = f": {guilty.error}" if guilty.error else "; see its output above"
    terminal.print_line(f"{guilty.host.name}: {guilty.cause or f'failed first, with {how}{why}'}")
    return 128 - status if status < 0 else status


def _guilt(node: Node) -> tuple[bool, bool, float]:
    """Order of failed hosts: first those that name a rank of their own, and of these those that blame no other."""
    return not node.cause, node.is_consequence, node.failed_at


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect the signals that end the job, instead of their actions."""
    received: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    former = {number: signal.signal(number, lambda each, _: received.append(each)) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
