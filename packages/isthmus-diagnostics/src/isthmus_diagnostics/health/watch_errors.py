"""Errors of the watch itself, which must not end the program or the watch."""

from types import TracebackType

from isthmus_common.progress import say


class Guard:
    """A block whose errors are printed, the first of each type and line, and not raised."""

    def __init__(self) -> None:
        self._printed: set[tuple[type[BaseException], int]] = set()

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if kind is None or not issubclass(kind, Exception):
            return False
        key = kind, traceback.tb_lineno if traceback else 0
        if key not in self._printed:
            self._printed.add(key)
            say(f"health: {kind.__name__}: {error}")
        return True
