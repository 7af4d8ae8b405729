"""Run Python in child processes, for tests that depend on a separate process or on the environment.

A child is forked from a server that has imported PyTorch, which takes a tenth of the time of a fresh interpreter.
The chip registers itself in the child, so it reads the environment there. A command that does without PyTorch is
forked from a server that has only imported the command line.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.repository import ROOT

SECONDS = 300  # a hang fails the test

# Prefixes of variables that are read after the import of PyTorch, so they may differ from the server's.
# Any other difference needs another server.
_LATE = tuple(
    "ISTHMUS_ PYTEST_ ACCELERATE_ DS_ MASTER_ LOCAL_ FAULT_ FLIGHT_ NCCL_ RANK WORLD_SIZE TMPDIR XDG_RUNTIME_DIR "
    "PYTHONPATH TORCH_DEVICE_BACKEND_AUTOLOAD PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF TORCHINDUCTOR_ "
    "_TORCHINDUCTOR_ CUDA_VISIBLE_DEVICES PYTORCH_NVML_BASED_CUDA_CHECK SAMPLE_CHIP_MEMORY".split()
)
# Those that the interpreter or the loader reads at its start, for a server without PyTorch.
_AT_START = re.compile("PYTHON(?!PATH$)|LD_|LC_|LANG")


def run(code: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """Run code in a child that has PyTorch imported, outside the checkout.

    Args:
        code: dedented before it is run.
        environment: changes to this process's environment; None removes a variable.
    """
    variables = _merge_environment(environment)
    server = _server(variables)
    if not server:
        return run_fresh(code, **environment)
    child = server.start(variables, "/", code=textwrap.dedent(code))
    try:
        out, err = child.communicate(timeout=SECONDS)
    finally:
        child.kill()
    return subprocess.CompletedProcess(["-c", code], child.returncode or 0, out, err)


def output(code: str, **environment: str | None) -> str:
    """Return the code's output in such a child; an error of the child fails the test with its message."""
    return _checked_output(run(code, **environment))


def run_fresh(code: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter, for tests of the import of PyTorch or of Python's exit."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    variables = _merge_environment(environment)
    return subprocess.run(
        command, capture_output=True, text=True, env=variables, timeout=SECONDS, check=False, cwd="/"
    )


def output_fresh(code: str, **environment: str | None) -> str:
    """Return the code's output in a fresh interpreter; an error of the child fails the test with its message."""
    return _checked_output(run_fresh(code, **environment))


def command(
    *words: object,
    light: bool = True,
    folder: Path | None = None,
    timeout: float = SECONDS,
    **environment: str | None,
) -> subprocess.CompletedProcess[str]:
    """Run ``isthmus words`` in a child.

    Args:
        words: its arguments.
        light: whether PyTorch is first imported by the command, if at all.
        folder: in which it runs; None is the current one.
        timeout: in seconds; the child is killed after it.
        environment: changes to this process's environment; None removes a variable.
    """
    arguments, variables = tuple(map(str, words)), _merge_environment(environment)
    server = _server(variables, light)
    if not server:
        line = [sys.executable, "-m", "isthmus", *arguments]
        return subprocess.run(
            line, capture_output=True, text=True, env=variables, timeout=timeout, check=False, cwd=folder
        )
    child = server.start(variables, str(folder or Path.cwd()), module="isthmus", arguments=arguments)
    try:
        out, err = child.communicate(timeout=timeout)
    finally:
        child.kill()
    return subprocess.CompletedProcess(["isthmus", *arguments], child.returncode or 0, out, err)


def start_module(
    name: str,
    *arguments: str,
    merged: bool = False,
    fresh: bool = False,
    within: tuple[str, ...] = (),
    **environment: str | None,
) -> Child | subprocess.Popen[str]:
    """Start ``python -W ignore -m name arguments`` in the checkout.

    Args:
        name: of a module in the checkout.
        arguments: its ``sys.argv[1:]``.
        merged: whether its stderr goes to its stdout.
        fresh: in a fresh interpreter, whose finalisation runs at its exit; a forked child skips it.
        within: a command that runs a fresh interpreter.
        environment: changes to this process's environment; None removes a variable.
    """
    variables = _merge_environment(environment)
    if not fresh and not within and (server := _server(variables)):
        return server.start(variables, str(ROOT), module=name, arguments=arguments, quiet=True, merged=merged)
    return subprocess.Popen(
        [*within, sys.executable, "-W", "ignore", "-m", name, *arguments],
        cwd=ROOT,
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merged else subprocess.PIPE,
        text=True,
    )


def finish(processes: Sequence[Child | subprocess.Popen[str]], timeout: float) -> list[tuple[str, str]]:
    """Return the output and the errors of processes; kill those that are left."""
    try:
        return [process.communicate(timeout=timeout) for process in processes]
    finally:
        for process in processes:
            process.kill()


def _merge_environment(environment: Mapping[str, str | None]) -> dict[str, str]:
    variables = {**os.environ, **environment}
    return {name: value for name, value in variables.items() if value is not None}


def _checked_output(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


class Child:
    """A process forked by the server, with the part of subprocess.Popen's interface that tests use.

    Attributes:
        pid: its process id.
        returncode: None until :meth:`poll` or :meth:`wait` has seen its end; negative for a signal.
        stdin: text stream; likewise ``stdout`` and ``stderr``, which is None where it is merged.
    """

    def __init__(self, status: int, stdin: int, stdout: int, stderr: int | None) -> None:
        self._status = os.fdopen(status)
        self.stdin = os.fdopen(stdin, "w", buffering=1)
        self.stdout = os.fdopen(stdout)
        self.stderr = os.fdopen(stderr) if stderr is not None else None
        self.returncode: int | None = None
        line = self._status.readline()
        if not line:
            raise RuntimeError("the fork server ended; see its error above")
        self.pid = int(line)

    def poll(self) -> int | None:
        """Return its exit status, or None while it runs."""
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the child's exit status.

        Raises:
            subprocess.TimeoutExpired: it runs still after that many seconds.
        """
        found = self._wait(timeout)
        if found is None:
            raise subprocess.TimeoutExpired("child", timeout or 0)
        return found

    def _wait(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            with selectors.DefaultSelector() as events:
                events.register(self._status, selectors.EVENT_READ)
                if not events.select(timeout):
                    return None
            line = self._status.readline()
            self.returncode = int(line) if line else -signal.SIGKILL
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal unless it has exited."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        """Send input, read stdout and stderr to their end, wait for the process.

        Raises:
            subprocess.TimeoutExpired: it runs still after that many seconds.
        """
        with contextlib.suppress(BrokenPipeError):
            if input:
                self.stdin.write(input)
            self.stdin.close()
        end = None if timeout is None else time.monotonic() + timeout
        streams = [each for each in (self.stdout, self.stderr) if each is not None and not each.closed]
        read: dict[Any, list[bytes]] = {stream: [] for stream in streams}
        with selectors.DefaultSelector() as events:
            for stream in streams:
                events.register(stream, selectors.EVENT_READ)
            while events.get_map():
                ready = events.select(None if end is None else max(0.0, end - time.monotonic()))
                if not ready:
                    raise subprocess.TimeoutExpired("child", timeout or 0)
                for key, _ in ready:
                    if piece := os.read(key.fd, 1 << 16):
                        read[key.fileobj].append(piece)
                    else:
                        events.unregister(key.fileobj)
        self.wait(None if end is None else max(0.0, end - time.monotonic()))
        for stream in (*streams, self._status):
            stream.close()
        out, err = (
            b"".join(read.get(each, ())).decode(errors="replace") for each in (self.stdout, self.stderr)
        )
        return out, err


class _Server:
    """A server of this process for children with these variables, but for those read late.

    Args:
        variables: the environment of the first child.
        light: whether it is without PyTorch.
    """

    def __init__(self, variables: Mapping[str, str], light: bool) -> None:
        self.owner = os.getpid()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._socket, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, str(Path(__file__).with_name("fork_server.py")), str(theirs.fileno())),
                    "light" if light else "torch",
                ],
                env={**variables, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "ISTHMUS_SHIM": ""},
                pass_fds=[theirs.fileno()],
                cwd="/",
            )
        atexit.register(self._close)

    def _close(self) -> None:
        self._socket.close()
        if os.getpid() == self.owner:
            self._process.wait()

    def start(
        self,
        variables: Mapping[str, str],
        folder: str,
        code: str = "",
        module: str = "",
        arguments: tuple[str, ...] = (),
        quiet: bool = False,
        merged: bool = False,
    ) -> Child:
        """Start a program in a child: code, or a module with arguments; quiet ignores Python's warnings."""
        request = {"environment": dict(variables), "folder": folder, "code": code, "module": module}
        request |= {"arguments": arguments, "quiet": quiet}
        stdin, our_stdin = os.pipe()
        our_stdout, stdout = os.pipe()
        our_stderr, stderr = (None, os.dup(stdout)) if merged else os.pipe()
        our_status, status = os.pipe()
        theirs = [stdin, stdout, stderr, status]
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], theirs)
        finally:
            for each in theirs:
                os.close(each)
        return Child(our_status, our_stdin, our_stdout, our_stderr)


_servers: dict[tuple[bool, frozenset[tuple[str, str]]], _Server | None] = {}


def _server(variables: Mapping[str, str], light: bool = False) -> _Server | None:
    """The server for these variables; None for the first child of another environment, which may be the only one."""
    key = light, _early_variables(variables, light)
    server = _servers.get(key)
    if server and server.owner == os.getpid():
        return server
    if key in _servers or light not in (kind for kind, _ in _servers):
        server = _Server(variables, light)
    _servers[key] = server
    return server


def _early_variables(variables: Mapping[str, str], light: bool) -> frozenset[tuple[str, str]]:
    """The variables that are read by the import of PyTorch, or by the interpreter and the loader alone."""
    if light:
        return frozenset(pair for pair in variables.items() if _AT_START.match(pair[0]))
    return frozenset(pair for pair in variables.items() if not pair[0].startswith(_LATE))
