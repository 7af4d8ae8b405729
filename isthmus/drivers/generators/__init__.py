"""Code generators of pointwise kernels (:mod:`isthmus.opset.pointwise`): those that are shipped, and a maker's own."""

import importlib
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from isthmus.drivers.libraries import LibraryError, import_file
from isthmus.opset.pointwise import Kernel, Run

SHIPPED = ("c",)

Generator: TypeAlias = Callable[[Sequence[Run]], list[Kernel]]


def load(name: str) -> Generator:
    """The function ``generate`` of a code generator.

    Args:
        name: of a shipped generator, or the path of a Python file.

    Raises:
        LibraryError: no such generator, or its file lacks the function.
    """
    if name.endswith(".py"):
        module = import_file(name, "code generator")
    elif name in SHIPPED:
        module = importlib.import_module(f"isthmus.drivers.generators.{name}")
    else:
        raise LibraryError(f"unknown code generator {name!r}; expected {', '.join(SHIPPED)} or a Python file")
    generate = getattr(module, "generate", None)
    if generate is None:
        raise LibraryError(f"code generator {name} has no function `generate`")
    return cast(Generator, generate)
