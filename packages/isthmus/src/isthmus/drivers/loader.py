"""Call ``libisthmus_loader.so``, which opens and checks drivers and operator libraries without PyTorch."""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

LIBRARY = Path(__file__).resolve().parents[1] / "libisthmus_loader.so"
_ERROR_BYTES = 4096


class LoaderError(ValueError):
    """A library cannot be used; the message is one line: path, what is wrong, remedy."""


@cache
def _loader() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        raise LoaderError(f"the loader is not built ({error}); run `pip install .`") from None


def call(function: str, *arguments: Any) -> None:
    """Call ``isthmus_open_driver`` or ``isthmus_open_operators``, adding the buffer for its message.

    Raises:
        LoaderError: the call failed; has its message.
    """
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    if getattr(_loader(), function)(*arguments, error, ctypes.c_size_t(_ERROR_BYTES)) != 0:
        raise LoaderError(error.value.decode(errors="replace"))
