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
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import IO, Any, NamedTuple

from isthmus._support.finding import describe
from isthmus._support.parent import end_with_parent

Message = dict[str, Any]
_PATIENCE_S = 5.0
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


class _Agent:
    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, **environment},
            start_new_session=True,  # Ctrl-C reaches only this process, whose end ends the agents
        )
        self.rest = b""
        self.sent = 0.0

    def lines(self) -> list[bytes] | None:
        """Return the new whole lines; None at the end."""
        assert self.process.stdout
        data = os.read(self.process.stdout.fileno(), 1 << 20)
        if not data:
            return None
        *whole, self.rest = (self.rest + data).split(b"\n")
        return whole

    def end(self, patience: float = 0.0) -> str:
        """End it, and return its last words."""
        assert self.process.stdin and self.process.stdout
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            status = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.process.stdout.close()
        self.errors.seek(0)
        last = self.errors.read().decode(errors="replace").strip().splitlines()[-1:]
        self.errors.close()
        return f"ended with status {status}{': ' if last else ''}{''.join(last)[:200]}"


class Agents:
    """Agents by name.

    Attributes:
        lost: why agents have ended or did not answer, by name; these are not asked again.
    """

    def __init__(
        self, commands: Mapping[str, list[str]], environments: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        """Start the agents.

        Args:
            commands: command line of each.
            environments: variables of each, added to those of this process.
        """
        self._events = selectors.DefaultSelector()
        self._alive: dict[str, _Agent] = {}
        self.lost: dict[str, str] = {}
        self._number = 0  # of the last requests
        for name, command in commands.items():
            agent = self._alive[name] = _Agent(command, (environments or {}).get(name, {}))
            assert agent.process.stdout
            self._events.register(agent.process.stdout, selectors.EVENT_READ, name)

    def __enter__(self) -> Agents:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the agents: their standard input ends."""
        for agent in self._alive.values():
            assert agent.process.stdin
            with contextlib.suppress(OSError):
                agent.process.stdin.close()
        until = time.monotonic() + _PATIENCE_S
        for agent in self._alive.values():
            agent.end(max(0.0, until - time.monotonic()))
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
            agent = self._alive[name]
            agent.sent = time.time()
            assert agent.process.stdin
            with contextlib.suppress(OSError):  # it has ended, as its output says
                agent.process.stdin.write(json.dumps({"id": self._number, **request}).encode() + b"\n")
                agent.process.stdin.flush()
        while (waiting := requests.keys() - found.keys() - self.lost.keys()) and time.monotonic() < until:
            for key, _ in self._events.select(max(0.0, until - time.monotonic())):
                agent, received = self._alive[key.data], time.time()
                lines = agent.lines()
                if lines is None:
                    self.drop(key.data, patience=_PATIENCE_S)
                for line in lines or []:
                    if reply := _reply(line, self._number):
                        found[key.data] = Answer(*reply, agent.sent, received)
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
        self._events.unregister(agent.process.stdout)  # type: ignore[arg-type]
        last = agent.end(patience)
        self.lost[name] = why or last


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
