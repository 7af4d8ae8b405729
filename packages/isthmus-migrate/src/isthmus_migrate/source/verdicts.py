"""Verdicts of a project's data flow on the places of a file."""

import ast
import enum
from collections.abc import Mapping
from typing import NamedTuple

Place = tuple[int, int, int, int]  # line, column, end line and end column of a node, as in ast


class Use(enum.Enum):
    """The use of a value."""

    DEVICE = "device"  # PyTorch takes it as a device or device type
    BACKEND = "backend"  # torch.distributed takes it as a backend
    KEY = "key"  # a device type is looked up among values like it
    WORD = "word"  # neither, as far as the source shows all of its uses
    UNKNOWN = "unknown"  # it leaves the project


class Steers(enum.Enum):
    """The effect of a mock of a name of ``torch.cuda`` on the code that a test reaches."""

    CUDA = "cuda"  # uses that stay
    ACCELERATOR = "accelerator"  # uses that become the name of torch.accelerator
    BOTH = "both"  # some of each, or uses that become something else


class Verdict(NamedTuple):
    """The kind of value at a place.

    Attributes:
        use: what its value is used as.
        certain: whether the source shows it; otherwise it only may be.
        why: a use, or a source of the value, in words: ``"passed to torch.zeros(device=) in train.py:12"``.
    """

    use: Use
    certain: bool
    why: str


WORD = Verdict(Use.WORD, True, "")


class Flow(NamedTuple):
    """Verdicts on the places of a file.

    Attributes:
        uses_torch: whether the file imports PyTorch, or a library built on it.
        others: types of other accelerators that the project names, ``"mps"``, and ``"meta"``.
        strings: on strings and formatted strings that may name a device or a backend.
        values: on operands of comparisons and receivers of calls.
        classes: the project's classes of which a receiver of a call may be an instance.
        recorded: what the record of a run says about a place, in words.
        steers: what mocks in a function steer, by its dotted name and the name of ``torch.cuda``.
    """

    uses_torch: bool = True
    others: frozenset[str] = frozenset()
    strings: Mapping[Place, Verdict] = {}
    values: Mapping[Place, Verdict] = {}
    classes: Mapping[Place, frozenset[str]] = {}
    recorded: Mapping[Place, str] = {}
    steers: Mapping[str, Mapping[str, Steers]] = {}


NO_FLOW = Flow()
NO_SETTINGS: Mapping[str, Verdict] = {}


def place_of(node: ast.AST) -> Place:
    """Return the place of an expression."""
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
