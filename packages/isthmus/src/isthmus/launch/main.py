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
from isthmus.shim import answers, device_text, import_hook, rewrite, source_text
from isthmus.stand_ins import provide

_REWRITING = {each.__file__ for each in (answers, device_text, source_text, rewrite)}
_HIDDEN = {__file__, *_REWRITING, import_hook.__file__, runpy.__file__}
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
    code = rewrite.compile_source(command, "<string>")
    exec(code, vars(_new_main()))


def _run_input(_: str) -> None:
    _set_first_path("")
    source = sys.stdin.buffer.read() if sys.stdin else b""  # all of it first, as the interpreter does
    exec(rewrite.compile_source(source, "<stdin>"), vars(_new_main()))


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
    if import_hook.is_users(path) and rewrite.worth_parsing(source):
        return rewrite.compile_source(source, path)
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
    """The traceback without the frames of the launcher and of rewritten source."""
    frames = list(_frames(error.__traceback__))
    if isinstance(error, SyntaxError):  # the frames below the compiler are Python's parser
        compiling = [index for index, frame in enumerate(frames) if _file(frame) == rewrite.__file__]
        frames = frames[: min(compiling, default=len(frames))]
    trace: TracebackType | None = None
    for frame in reversed([frame for frame in frames if not _is_hidden(_file(frame))]):
        trace = TracebackType(trace, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return trace


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _is_hidden(path: str) -> bool:
    return path in _HIDDEN or path.startswith(_FROZEN)


def _file(frame: TracebackType) -> str:
    return frame.tb_frame.f_code.co_filename


if __name__ == "__main__":
    main(sys.argv[1:])
