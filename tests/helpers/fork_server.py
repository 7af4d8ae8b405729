"""A process that has imported PyTorch without the chip and forks a child for each requested program.

``python fork_server.py FD torch`` reads requests from the Unix socket FD until its end; with ``light`` it has
imported the command line and NumPy, but not PyTorch. A request is a line of JSON with three or four file descriptors:
stdin, stdout, stderr of the program, and a pipe for its process id and wait status.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import selectors
import socket
import sys
import threading
import traceback
import types
import warnings
from typing import Any

LENGTH = 1 << 20  # bytes of a request
# PyTorch imports sympy and the decompositions late, and they take a second.
MODULES = {
    "torch": ("torch", "sympy", "torch._inductor.decomposition"),
    "light": (
        *(
            "isthmus_common.application",
            "isthmus.options",
            "isthmus.conformance.run",
            "isthmus.conformance.claims",
        ),
        *("isthmus_cluster.inventory", "isthmus_cluster.isolate.report", "isthmus_migrate.analyse.report"),
    ),
}


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork a child for each request. Returns the request in a child, and None at the end of the socket."""
    events = selectors.DefaultSelector()
    events.register(control, selectors.EVENT_READ)
    while True:
        for key, _ in events.select():
            if key.fileobj is not control:
                _report_end(*key.data)
                events.unregister(key.fd)
                os.close(key.fd)
                continue
            message, descriptors, _, _ = socket.recv_fds(control, LENGTH, 4)
            if not message:
                return None
            *streams, status = descriptors
            child = os.fork()
            if not child:
                events.close()
                control.close()
                os.close(status)
                _replace_streams(streams)
                request: dict[str, Any] = json.loads(message)
                return request
            _tell(status, child)
            for each in streams:
                os.close(each)
            events.register(os.pidfd_open(child), selectors.EVENT_READ, (child, status))


def _report_end(child: int, status: int) -> None:
    _, ending = os.waitpid(child, 0)
    _tell(status, os.waitstatus_to_exitcode(ending))
    os.close(status)


def _tell(status: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the test ended before its child
        os.write(status, f"{number}\n".encode())


def _replace_streams(streams: list[int]) -> None:
    for number, each in enumerate(streams):
        os.dup2(each, number)
    for each in streams:
        os.close(each)
    # Those of the server know whether its files could seek.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _text_stream(number, getattr(sys, f"__{name}__"))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _text_stream(number: int, like: io.TextIOWrapper) -> io.TextIOWrapper:
    """A stream of a file descriptor, as the interpreter opens it at its start; of another one's encoding."""
    raw = io.FileIO(number, "w" if number else "r", closefd=False)
    raw.name = like.name
    unbuffered = bool(number and os.environ.get("PYTHONUNBUFFERED"))
    buffer = raw if unbuffered else io.BufferedWriter(raw) if number else io.BufferedReader(raw)
    lines = number == 2 and not unbuffered
    text = io.TextIOWrapper(
        buffer, like.encoding, like.errors, line_buffering=lines, write_through=unbuffered
    )
    text.mode = raw.mode.rstrip("b")
    return text


def run(request: dict[str, Any]) -> None:
    """Run a program as a fresh interpreter would, from the import of PyTorch's backends on."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if request["quiet"]:
        warnings.simplefilter("ignore")
    torch = sys.modules.get("torch")
    if torch and os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
        torch._import_device_backends()
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if module := request["module"]:
        sys.path[0] = request["folder"]
        sys.argv = [module, *request["arguments"]]
        sys.orig_argv = [sys.executable, "-m", *sys.argv]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    sys.path[0] = ""
    sys.argv = ["-c"]
    exec(compile(request["code"], "<string>", "exec"), vars(main))


def end(error: BaseException | None) -> int:
    """Run Python's exit handling and return the exit status of a program."""
    status = 0
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if status and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    elif error is not None:
        status = 1
        frames = error.__traceback__
        while frames and frames.tb_frame.f_code.co_filename == __file__:
            frames = frames.tb_next
        sys.last_value = error  # the interpreter does the same
        sys.excepthook(type(error), error.with_traceback(frames), frames)
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "closed", True):
            continue
        try:
            stream.flush()
        except (OSError, ValueError):
            status = status or 120
    return status


def main() -> None:
    """Serve, and in each child run its program."""
    control = socket.socket(fileno=int(sys.argv[1]))
    for module in MODULES[sys.argv[2]]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # otherwise a collection in a child copies every page
    request = serve(control)
    if request is None:
        return
    error: BaseException | None = None
    try:
        run(request)
    except BaseException as raised:
        error = raised
    status = 1
    try:
        status = end(error)
    except BaseException:
        traceback.print_exc()
    os._exit(status)


if __name__ == "__main__":
    main()
