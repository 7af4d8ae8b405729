"""Processes that answer requests, on other hosts or on this one: one line of JSON each way, over standard streams.

:class:`Agents` is the side that asks, :func:`serve` the side that answers. Imports no torch, no pydantic.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from isthmus_common.finding import describe
from isthmus_common.parent import end_with_parent
from isthmus_common.text import clean_text

Message = dict[str, Any]
_PATIENCE_S = 5.0
_LONGEST = 16 << 20  # bytes of a line
_GRACE_S = 2.0  # for a function to remove its temporary files


class Answer(NamedTuple):
    """The answer to a request.

    Attributes:
        value: what the agent returned.
        error: why it has none, in one line; "" if it has.
        sent, received: seconds since the epoch here, around the exchange.
    """

    value: Message
    error: str
    sent: float
    received: float


class Agent:
    """A process whose output is read as lines, in a session of its own, which Ctrl-C does not reach.

    Attributes:
        name: given by its owner.
        process: the local one.
        last_words: the last line of its standard error, or why it was killed.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        environment: Mapping[str, str],
        events: selectors.BaseSelector,
        first: bytes = b"",
    ) -> None:
        """Start it; ``first`` goes to its standard input, and ``events`` has its output with this object as data."""
        pipe = subprocess.PIPE
        variables = {**os.environ, **environment}
        self.name, self.last_words, self.sent = name, "", 0.0
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, env=variables, start_new_session=True
        )
        self._write(first)
        self._events = events
        self._rest: dict[int, bytes] = {}
        for stream in (self.process.stdout, self.process.stderr):
            assert stream
            self._rest[stream.fileno()] = b""
            events.register(stream, selectors.EVENT_READ, self)

    @property
    def has_ended(self) -> bool:
        """Whether its output has ended."""
        return not self._rest

    def read(self, descriptor: int) -> list[bytes]:
        """Return the new whole lines of standard output; those of standard error become its last words."""
        assert self.process.stdout
        data = os.read(descriptor, 1 << 16)
        *lines, rest = (self._rest[descriptor] + data).split(b"\n")
        self._rest[descriptor] = rest
        if is_too_long := len(rest) > _LONGEST:
            self.process.kill()
        if is_too_long or not data:
            self._events.unregister(descriptor)
            del self._rest[descriptor]
        if descriptor == self.process.stdout.fileno():
            words = []
        else:
            words, lines = [clean_text(line.decode(errors="replace")).strip()[:200] for line in lines], []
        if is_too_long:
            words.append(f"more than {_LONGEST >> 20} MiB of output without a line end")
        self.last_words = next(filter(None, reversed(words)), self.last_words)
        return lines

    def send(self, message: Message) -> None:
        """Write a line of JSON to its standard input; nothing if it has ended, as its output says."""
        self._write(json.dumps(message).encode() + b"\n")

    def _write(self, data: bytes) -> None:
        assert self.process.stdin
        with contextlib.suppress(OSError):
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def close(self) -> None:
        """End its standard input, and so the agent, also on a host that is reached by ssh."""
        assert self.process.stdin
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def end(self, patience: float = 0.0) -> int:
        """Wait for its end, kill it after ``patience`` seconds; return its exit status."""
        self.close()
        try:
            status = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        for descriptor in self._rest:
            self._events.unregister(descriptor)
        self._rest.clear()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream
            stream.close()
        return status


def end_all(agents: Sequence[Agent], patience: float) -> None:
    """End agents at the same time; kill those that have not ended after ``patience`` seconds."""
    for agent in agents:
        agent.close()
    until = time.monotonic() + patience
    for agent in agents:
        agent.end(max(0.0, until - time.monotonic()))


class Agents:
    """Agents by name.

    Attributes:
        lost: why agents have ended or did not answer, by name; these are not asked again.
    """

    def __init__(
        self,
        commands: Mapping[str, list[str]],
        environments: Mapping[str, Mapping[str, str]] | None = None,
        first: Mapping[str, bytes] | None = None,
    ) -> None:
        """Start the agents.

        Args:
            commands: command line of each.
            environments: variables of each, added to those of this process.
            first: what goes to the standard input of each.
        """
        self._events = selectors.DefaultSelector()
        self._alive: dict[str, Agent] = {}
        self.lost: dict[str, str] = {}
        self._number = 0  # number of the last requests
        for name, command in commands.items():
            variables, data = (environments or {}).get(name, {}), (first or {}).get(name, b"")
            self._alive[name] = Agent(name, command, variables, self._events, data)

    def __enter__(self) -> Agents:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the agents."""
        end_all(list(self._alive.values()), _PATIENCE_S)
        self._events.close()

    @property
    def alive(self) -> list[str]:
        """Names of the agents that are not lost."""
        return list(self._alive)

    def ask(
        self,
        requests: Mapping[str, Message],
        seconds: float,
        progress: Callable[[int], None] = lambda _: None,
    ) -> dict[str, Answer]:
        """Ask some agents at the same time; return the answers of those that are not lost.

        Args:
            requests: by agent: ``ask``, the function, and its keyword arguments.
            seconds: limit of all answers.
            progress: called with the number of answers.
        """
        found: dict[str, Answer] = {}
        until = time.monotonic() + seconds
        self._number += 1
        for name, request in requests.items():
            self._alive[name].sent = time.time()
            self._alive[name].send({"id": self._number, **request})
        while (waiting := requests.keys() - found.keys() - self.lost.keys()) and time.monotonic() < until:
            for key, _ in self._events.select(max(0.0, until - time.monotonic())):
                agent, received = key.data, time.time()
                for line in agent.read(key.fd):
                    if reply := _reply(line, self._number):
                        found[agent.name] = Answer(*reply, agent.sent, received)
                if agent.has_ended:
                    self.drop(agent.name, patience=_PATIENCE_S)
                progress(len(requests) - len(waiting))
        for name in waiting:
            self.drop(name, f"no answer within {seconds:.0f} s")
        return {name: found[name] for name in requests if name in found}

    def drop(self, name: str, why: str = "", patience: float = 0.0) -> None:
        """End an agent.

        Args:
            name: which one.
            why: is kept in ``lost``; "" for its own last words.
            patience: seconds that it has to end by itself.
        """
        agent = self._alive.pop(name)
        status = agent.end(patience)
        words = f": {agent.last_words}" if agent.last_words else ""
        self.lost[name] = why or f"ended with status {status}{words}"


def _reply(line: bytes, number: int) -> tuple[Message, str] | None:
    """Return value and error of the answer to a request; None for other output, such as the greeting of a host."""
    with contextlib.suppress(ValueError, RecursionError):
        match json.loads(line):
            case {"id": found, "value": dict(value)} if found == number:
                return value, ""
            case {"id": found, "error": str(error)} if found == number:
                return {}, error
    return None


def serve(functions: Mapping[str, Callable[..., Message]]) -> None:
    """Answer requests until the end of standard input, or of the process that asks.

    Args:
        functions: by name; each takes keyword arguments and returns what JSON can carry. An error becomes the answer.
    """
    end_with_parent(signal.SIGKILL)
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    stream = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of libraries must not reach the answers

    def read() -> None:
        for line in sys.stdin:
            requests.put(line)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        time.sleep(_GRACE_S)
        os._exit(0)  # also from the middle of a function

    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=read, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            request = json.loads(requests.get())
            answer: Message = {"id": request.pop("id")}
            try:
                answer["value"] = functions[request.pop("ask")](**request)
            except Exception as error:
                answer["error"] = describe(error)
            print(json.dumps(answer), file=stream)
    os._exit(0)
