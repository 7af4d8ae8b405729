"""The line of the user's program that called an operator; in backward, the line of the forward call."""

import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch

from isthmus_common import package_folders

_PACKAGES = tuple({sysconfig.get_paths()[key] for key in ("purelib", "platlib", "stdlib", "platstdlib")})
_KEPT = 1 << 18


class Origin(NamedTuple):
    """The origin of a call.

    Attributes:
        line: ``train.py:12`` of the program, or "".
        library: ``modeling_llama.py:88``, the innermost line of a package other than PyTorch, or "".
        backward: whether the call belongs to backward; the lines are those of the forward call.
        node: name of the autograd node, in backward.
        module: given by the caller of :func:`origin`; in backward, that of the forward call.
    """

    line: str
    library: str = ""
    backward: bool = False
    node: str = ""
    module: str = ""

    def __str__(self) -> str:
        text = self.line or "unknown line"
        text += f" (in {self.library})" if self.library else ""
        return f"backward of {text}" if self.backward else text


_forward: dict[int, tuple[Origin, bool]] = {}


def origin(requires_grad: bool, module: str = "") -> Origin:
    """Return the origin of the current call.

    Args:
        requires_grad: whether autograd records the call: its line then belongs to the newest autograd node.
        module: the module that is running, which calls in backward are attributed to.
    """
    found, in_engine = _walk()
    found = found._replace(module=module)
    node: Any = torch._C._current_autograd_node() if torch._C._current_graph_task_id() != -1 else None
    if node is not None and (in_engine or not found.line):
        forward = _line_of(node._sequence_nr())
        return Origin(forward.line or found.line, forward.library, True, node.name(), forward.module)
    _remember(found, requires_grad and torch.is_grad_enabled())
    return found


def program_frame() -> FrameType | None:
    """Return the innermost frame of the program on this thread's stack, or None."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _kind(frame.f_code.co_filename) != "user":
        frame = frame.f_back
    return frame


def forget() -> None:
    """Drop the lines of forward calls."""
    _forward.clear()


def _remember(found: Origin, recorded: bool) -> None:
    number = torch._C._autograd._get_sequence_nr() - 1
    known = _forward.get(number)
    # A call that autograd does not record is kept only until a recorded one is known: a view, or the forward of an
    # autograd.Function, which runs without gradients.
    if known is None or (recorded and not known[1]):
        _forward[number] = (found, recorded)
    if len(_forward) > _KEPT:
        for old in sorted(_forward)[: _KEPT // 2]:
            del _forward[old]


def _line_of(number: int) -> Origin:
    if number in _forward:
        return _forward[number][0]
    before = [known for known in range(max(0, number - 8), number) if known in _forward]
    return _forward[before[-1]][0] if before else Origin("")


def _walk() -> tuple[Origin, bool]:
    """Return the origin, and whether the autograd engine is on the stack inside of the program."""
    library, in_engine = "", False
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        kind = _kind(code.co_filename)
        if code.co_name == "_engine_run_backward":
            in_engine = True
        elif kind == "user":
            return Origin(_text(frame), library), in_engine
        elif kind == "library" and not library and not in_engine:
            library = _text(frame)
        frame = frame.f_back
    return Origin("", library), in_engine


def _text(frame: FrameType) -> str:
    return f"{_name(frame.f_code.co_filename)}:{frame.f_lineno}"


@cache
def _name(file: str) -> str:
    return Path(file).name


@cache
def _kind(file: str) -> str:
    """Classify a file: user, library, or hidden (PyTorch, this package, Python itself)."""
    if file.startswith("<") and file not in ("<stdin>", "<string>"):
        return "hidden"
    parts = Path(file).parts
    if "site-packages" in parts or "dist-packages" in parts:
        after = parts[
            len(parts) - parts[::-1].index(next(p for p in parts[::-1] if p.endswith("-packages"))) :
        ]
        return "hidden" if after[:1] in (("torch",), ("isthmus",)) else "library"
    return "hidden" if file.startswith((*package_folders.folders(), *_PACKAGES)) else "user"
