"""Which line of the user's program an operator call comes from; in backward, the line of the forward call."""

from __future__ import annotations

import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch

_PACKAGES = tuple({sysconfig.get_paths()[key] for key in ("purelib", "platlib", "stdlib", "platstdlib")})
_OURS = str(Path(__file__).resolve().parents[1])
_KEPT = 1 << 18


class Origin(NamedTuple):
    """Where a call comes from.

    Attributes:
        line: ``train.py:12`` of the program, "" where there is none.
        library: ``modeling_llama.py:88``: the nearest line of a package outside PyTorch, where one is in between.
        backward: whether the call belongs to backward; the lines are then those of the forward call.
        node: name of the autograd node, in backward.
    """

    line: str
    library: str = ""
    backward: bool = False
    node: str = ""

    def __str__(self) -> str:
        text = self.line or "no line of the program"
        text += f" (in {self.library})" if self.library else ""
        return f"backward of {text}" if self.backward else text


_forward: dict[int, tuple[Origin, bool]] = {}


def origin(requires_grad: bool) -> Origin:
    """Origin of the call under way.

    Args:
        requires_grad: whether autograd records the call: its line is then that of the newest autograd node.
    """
    found, in_engine = _walk()
    node: Any = torch._C._current_autograd_node() if torch._C._current_graph_task_id() != -1 else None
    if node is not None and (in_engine or not found.line):
        forward = _line_of(node._sequence_nr())
        return Origin(forward.line or found.line, forward.library, True, node.name())
    _remember(found, requires_grad and torch.is_grad_enabled())
    return found


def program_frame() -> FrameType | None:
    """The innermost frame of the program on this thread's stack; None where there is none."""
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
    # A call that autograd does not record says nothing of the node, unless nothing better is known of it: a view's,
    # or that of an autograd.Function, whose forward runs without gradients.
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
    """First lines outside PyTorch, and whether the autograd engine was met before any of the program."""
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
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


@cache
def _kind(file: str) -> str:
    """user, library, or hidden: PyTorch, this package, Python itself."""
    if file.startswith("<") and file not in ("<stdin>", "<string>"):
        return "hidden"
    parts = Path(file).parts
    if "site-packages" in parts or "dist-packages" in parts:
        after = parts[
            len(parts) - parts[::-1].index(next(p for p in parts[::-1] if p.endswith("-packages"))) :
        ]
        return "hidden" if after[:1] in (("torch",), ("isthmus",)) else "library"
    return "hidden" if file.startswith((_OURS, *_PACKAGES)) else "user"
