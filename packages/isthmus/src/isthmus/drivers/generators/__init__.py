"""Code generators of pointwise kernels (:mod:`isthmus.opset.pointwise`): the shipped ones, and a maker's own."""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from isthmus.drivers.libraries import LibraryError, import_file
from isthmus.opset.pointwise import Kernel, Run

SHIPPED = ("c", "triton")


class Generator(NamedTuple):
    """A code generator.

    Attributes:
        generate: one kernel per run.
        shortest: number of operators from which a run is worth a kernel (``SHORTEST`` of its module; default 2). 1 if
            generated kernels are faster than the library's own.
        most_operands: number of inputs and outputs that a kernel takes (``MOST_OPERANDS`` of its module; default 60).
    """

    generate: Callable[[Sequence[Run]], list[Kernel]]
    shortest: int
    most_operands: int


def load(name: str) -> Generator:
    """Import a code generator.

    Args:
        name: of a shipped generator, or the path of a Python file.

    Raises:
        LibraryError: no such generator, a package that it needs is not installed, or its file lacks the function
            ``generate``.
    """
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise LibraryError(f"code generator {name} is not a file; check `code_generator` in driver.toml")
        module = import_file(name, "code generator")
    elif name in SHIPPED:
        module = _shipped_generator(name)
    else:
        raise LibraryError(f"unknown code generator {name!r}; expected {', '.join(SHIPPED)} or a Python file")
    generate = getattr(module, "generate", None)
    if generate is None:
        raise LibraryError(f"code generator {name} has no function `generate`")
    return Generator(generate, getattr(module, "SHORTEST", 2), getattr(module, "MOST_OPERANDS", 60))


def _shipped_generator(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"isthmus.drivers.generators.{name}")
    except ModuleNotFoundError as error:
        raise LibraryError(
            f"code generator {name!r} needs the package {error.name}; run pip install 'isthmus[{error.name}]'"
        ) from None
