"""Query and force the implementation that a call takes."""

from types import FunctionType
from typing import Any, Self

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from isthmus import ops
from isthmus.ops.registration import Choice, Operator, operators, record_choices


def implementations() -> dict[str, list[str]]:
    """The implementations of every operator, in the order in which they are tried."""
    return {name: each.names() for name, each in operators().items()}


def which(name: str, *arguments: Any, **named: Any) -> Choice:
    """Return the implementation that ``isthmus.ops.<name>(*arguments, **named)`` takes, and why; computes nothing.

    Args:
        name: a function of ``isthmus.ops``, such as ``rms_norm``.
        arguments: its positional arguments.
        named: its keyword arguments.

    Raises:
        ValueError: unknown function; a function with one implementation; or a forced implementation that does not
            support the call.
    """
    function = getattr(ops, name, None) if name in _functions() else None
    if function is None:
        raise ValueError(f"isthmus.ops: unknown function {name!r}; expected one of {', '.join(_functions())}")
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, record_choices() as choices:
        fake = pytree.tree_map_only(torch.Tensor, mode.from_tensor, (arguments, named))
        function(*fake[0], **fake[1])
    if not choices:
        raise ValueError(f"isthmus.ops: {name} uses only PyTorch's operators; there is no choice")
    return choices[0]


def _functions() -> list[str]:
    """The names of the functions that compute."""
    others = {"implementations", "patch", "which"}
    return [
        each for each in ops.__all__ if each not in others and isinstance(getattr(ops, each), FunctionType)
    ]


class use:
    """Force one implementation of an operator, until undone; as a context manager, until the block ends.

        isthmus.ops.use("rms_norm", "composite")
        isthmus.ops.use("rms_norm", None)       # automatic choice

    Args:
        name: an operator (:func:`implementations` lists them); its backward, ``<name>_backward``, is forced too.
        implementation: one of its implementations; None restores the automatic choice.

    Raises:
        ValueError: unknown operator or implementation.
    """

    def __init__(self, name: str, implementation: str | None) -> None:
        known = operators()
        if name not in known:
            raise ValueError(
                f"isthmus.ops: unknown operator {name!r}; expected one of {', '.join(sorted(known))}"
            )
        self._before: list[tuple[Operator, str]] = []
        for each in (known[name], known.get(f"{name}_backward")):
            if each is None:
                continue
            if implementation is not None and implementation not in each.names():
                raise ValueError(
                    f"{each.name}: unknown implementation {implementation!r}; "
                    f"expected one of {', '.join(each.names())}"
                )
            self._before.append((each, each.forced))
        for each, _ in self._before:
            each.force(implementation or "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each, forced in self._before:
            each.force(forced)
