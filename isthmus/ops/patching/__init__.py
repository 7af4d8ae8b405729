"""The operators under the functions and classes of a library, printable and reversible.

from isthmus import ops

patched = ops.patch("transformers")
print(patched)      # what was replaced and why, and what was left as it was and why
patched.undo()
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Collection
from types import TracebackType
from typing import Self

from isthmus._support.patches import Patch
from isthmus.ops.patching.attempt import Attempt

LIBRARIES = ("transformers", "torch")


class Patched:
    """What :func:`patch` replaced. ``print`` it, :meth:`undo` it, or use it as a context manager.

    Attributes:
        library: name of the library.
        left: what was left as it was, with the reason, by target.
    """

    def __init__(self, library: str, attempt: Attempt) -> None:
        self.library = library
        self.left = attempt.left
        self._scope = attempt.scope

    @property
    def replaced(self) -> list[Patch]:
        """What is replaced now, oldest first; empty after :meth:`undo`."""
        return list(self._scope.patches)

    def undo(self) -> None:
        """Put back every object that was there. A second call does nothing."""
        self._scope.undo()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()

    def __str__(self) -> str:
        lines = [f"{self.library}: {len(self.replaced)} replaced, {len(self.left)} left as they were"]
        lines += [f"  {each.target}: {each.reason}" for each in self.replaced]
        lines += [f"  left: {target}: {why}" for target, why in self.left.items()]
        return "\n".join(lines)


def patch(library: str, parts: Collection[str] | None = None) -> Patched:
    """Put the operators under a library, for models built before and after; numbers differ by rounding only.

    Through the library's own hooks where it has some. What has another form in the installed version is left as it
    was and reported; so is what another call has replaced already.

    Args:
        library: ``transformers``: LLaMA, Qwen2, Qwen3, Mistral, GPT-2 and BERT, and the attention and the losses
            that all of its models share. ``torch``: ``scaled_dot_product_attention`` on the chip.
        parts: only these (``isthmus.ops.patching.transformers.PARTS`` names them); None is all.

    Raises:
        ValueError: there is nothing for that library, or no such part.
        ModuleNotFoundError: the library is not installed.
    """
    if library not in LIBRARIES:
        raise ValueError(f"isthmus.ops.patch has nothing for {library!r}; it has {', '.join(LIBRARIES)}")
    if importlib.util.find_spec(library) is None:
        raise ModuleNotFoundError(f"isthmus.ops.patch: {library} is not installed; pip install {library}")
    module = importlib.import_module(f"isthmus.ops.patching.{library}")
    wanted = module.PARTS if parts is None else (parts,) if isinstance(parts, str) else tuple(parts)
    if unknown := [part for part in wanted if part not in module.PARTS]:
        raise ValueError(
            f"isthmus.ops.patch: {library} has no part {unknown[0]!r}; it has {', '.join(module.PARTS)}"
        )
    attempt = Attempt()
    for part, install in module.PARTS.items():
        if part not in wanted:
            continue
        try:
            install(attempt)
        except ImportError as error:
            attempt.left[f"{library}, {part}"] = f"this version has another form: {error}"
    return Patched(library, attempt)
