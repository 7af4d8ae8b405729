"""``python -m isthmus.launch.main script.py ...``: runs a program as plain Python would, with the shim.

The program sees what plain Python shows it: ``__main__``, ``sys.argv``, ``sys.path[0]``, exit codes, signals, and
tracebacks that begin in its own first line.
"""

import atexit
import builtins
import os
import runpy
import sys
import zipfile
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

from isthmus.launch import lines, process
from isthmus.stand_ins import provide
from isthmus_common.package_folders import is_users

_HIDDEN = {__file__, runpy.__file__}
_FROZEN = ("<frozen runpy>", "<frozen importlib.")  # Python hides the latter itself, except from our loader

_former_main = sys.modules["__main__"]  # kept alive: it may be the module that this code runs in


def main(arguments: list[str]) -> None:
    """Run ``-m module ...``, ``-c command ...``, ``- ...`` (a program on standard input) or ``script ...``."""
    lines.expect()
    atexit.register(lines.print_end)  # first, so that it runs last: after child processes have been joined
    process.install()
    kind, target = arguments[0], arguments[0]
    if kind in ("-m", "-c"):
        target = arguments[1]
        arguments = arguments[1:]
    sys.argv = [kind, *arguments[1:]]
    run = {"-m": _run_module, "-c": _run_command, "-": _run_input, "": _run_input}.get(kind, _run_path)
    _with_users_traceback(run, target)


def _run_module(name: str) -> None:
    _set_first_path(str(Path.cwd()))
    _new_main()
    _run_as_main(name)


def _run_command(command: str) -> None:
    _set_first_path("")
    exec(process.compile_program(command, "<string>"), vars(_new_main()))


def _run_input(_: str) -> None:
    _set_first_path("")
    source = sys.stdin.buffer.read() if sys.stdin else b""  # all of it first, as the interpreter does
    exec(process.compile_program(source, "<stdin>"), vars(_new_main()))


def _run_path(path: str) -> None:
    if Path(path).is_dir() or zipfile.is_zipfile(path):
        _set_first_path(path)
        _new_main()
        _run_as_main("__main__", False)
        return
    absolute = os.path.abspath(path)  # noqa: PTH100 - as CPython does, symbolic links stay
    _set_first_path(str(Path(path).resolve().parent))
    code = _compile(absolute)
    module = _new_main()
    module.__file__ = absolute
    module.__loader__ = SourceFileLoader("__main__", absolute)
    module.__dict__["__cached__"] = None
    exec(code, vars(module))


def _run_as_main(*arguments: Any) -> None:
    function: Callable[..., Any] = vars(runpy)["_run_module_as_main"]
    function(*arguments)


def _compile(path: str) -> CodeType:
    source = Path(path).read_bytes()
    if is_users(path):
        return process.compile_program(source, path)
    return compile(source, path, "exec", dont_inherit=True)


def _new_main() -> ModuleType:
    """An empty ``__main__``, as a fresh interpreter has it."""
    module = ModuleType("__main__")
    vars(module).update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = module
    return module


def _set_first_path(entry: str) -> None:
    if not getattr(sys.flags, "safe_path", False):  # python -P, from 3.11 on
        sys.path[0] = entry


def _with_users_traceback(run: Callable[[str], None], target: str) -> None:
    """Run; report an exception with the frames of the user's code only, then let it end the process as usual."""
    try:
        run(target)
    except SystemExit:
        raise
    except BaseException as error:
        error.__traceback__ = _users_frames(error)
        sys.excepthook(type(error), error, error.__traceback__)
        if hint := provide.hint(error):
            print(f"isthmus: {hint}", file=sys.stderr)
        sys.excepthook = lambda *_: None  # reported; the interpreter still chooses the exit status
        raise


def _users_frames(error: BaseException) -> TracebackType | None:
    """The traceback without the frames of the launcher, nor of what compiles its programs."""
    compiler = sys.modules.get(getattr(process.compile_program, "__module__", ""))
    hidden = _HIDDEN | {getattr(compiler, "__file__", "")}
    trace: TracebackType | None = None
    for frame in reversed(list(_frames(error.__traceback__))):
        path = frame.tb_frame.f_code.co_filename
        if path not in hidden and not path.startswith(_FROZEN):
            trace = TracebackType(trace, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return trace


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


if __name__ == "__main__":
    main(sys.argv[1:])
