"""Replace functions and classes of a library by the operators; every replacement is listed and reversible.

from isthmus import ops

patched = ops.patch("transformers")
print(patched)      # what was replaced, what was not, and why
patched.undo()
"""

import importlib
import importlib.util
from collections.abc import Collection
from typing import Self

from isthmus.ops.patching.attempt import Attempt
from isthmus_common.patches import Patch

LIBRARIES = ("transformers", "torch")


class Patched:
    """The replacements of :func:`patch`. Print it, :meth:`undo` it, or use it as a context manager.

    Attributes:
        library: name of the library.
        left: reasons why targets were not replaced, by target.
    """

    def __init__(self, library: str, attempt: Attempt) -> None:
        self.library = library
        self.left = attempt.left
        self._scope = attempt.scope

    @property
    def replaced(self) -> list[Patch]:
        """The active replacements, oldest first; empty after :meth:`undo`."""
        return list(self._scope.patches)

    def undo(self) -> None:
        """Restore the originals. A second call does nothing."""
        self._scope.undo()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def __str__(self) -> str:
        lines = [f"{self.library}: {len(self.replaced)} replaced, {len(self.left)} not replaced"]
        lines += [f"  {each.target}: {each.reason}" for each in self.replaced]
        lines += [f"  not replaced: {target}: {why}" for target, why in self.left.items()]
        return "\n".join(lines)


def patch(library: str, parts: Collection[str] | None = None) -> Patched:
    """Make a library use the operators, in existing and new models; results differ by rounding only.

    Uses the library's own hooks where it has them. Targets with an unexpected signature in the installed version, or
    already replaced by another call, are not replaced and are reported.

    Args:
        library: ``transformers``: LLaMA, Qwen2, Qwen3, Mistral, GPT-2 and BERT, and the attention and losses of all
            its models. ``torch``: ``scaled_dot_product_attention`` on the chip.
        parts: only these (``isthmus.ops.patching.transformers.PARTS`` names them); None is all.

    Raises:
        ValueError: unknown library or part.
        ModuleNotFoundError: the library is not installed.
    """
    if library not in LIBRARIES:
        raise ValueError(f"isthmus.ops.patch: unknown library {library!r}; expected {' or '.join(LIBRARIES)}")
    if importlib.util.find_spec(library) is None:
        raise ModuleNotFoundError(f"isthmus.ops.patch: {library} is not installed; pip install {library}")
    module = importlib.import_module(f"isthmus.ops.patching.{library}")
    wanted = module.PARTS if parts is None else (parts,) if isinstance(parts, str) else tuple(parts)
    if unknown := [part for part in wanted if part not in module.PARTS]:
        raise ValueError(
            f"isthmus.ops.patch: {library}: unknown part {unknown[0]!r}; expected one of {', '.join(module.PARTS)}"
        )
    attempt = Attempt()
    for part, install in module.PARTS.items():
        if part not in wanted:
            continue
        try:
            install(attempt)
        except ImportError as error:
            attempt.left[f"{library}, {part}"] = f"not supported in the installed version: {error}"
    return Patched(library, attempt)
