"""Record the allocations of a training run on the chip, from its allocator's history.

    python -m isthmus.memory.recording FILE script.py ...

runs the program as ``isthmus run`` does and writes FILE at its end.
"""

import atexit
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from isthmus.memory.trace import ALLOC, FREE, STEP, USE, Trace, TraceError, check_output, write

# Actions of the allocator's history (csrc/memory/history.h); a free counts when the program requests it.
_ALLOC, _FREE_REQUESTED, _STEP, _USE = 0, 1, 9, 10

_CUT_SHORT = (
    "incomplete: the program calls _record_memory_history itself, which ended or limited the recording; "
    "remove that call"
)


def from_events(events: Sequence[Sequence[int]], *, name: str, made: str, model: str) -> Trace:
    """Return the trace of one device's history.

    Args:
        events: (action, address, size, stream) in order; for a use, size is the using stream.
        name: name of the trace.
        made: how it was made.
        model: the trained model.

    Blocks allocated before the history began are left out, empty steps are merged with the preceding one, and streams
    are numbered in order of appearance.
    """
    rows: list[tuple[int, int, int, int]] = []
    held: dict[int, int] = {}
    streams: dict[int, int] = {}
    count = 0
    for action, address, size, stream in events:
        if action == _ALLOC and size > 0:
            rows.append((ALLOC, count, size, streams.setdefault(stream, len(streams))))
            held[address] = count
            count += 1
        elif action == _FREE_REQUESTED and address in held:
            rows.append((FREE, held.pop(address), 0, 0))
        elif action == _USE and address in held:
            rows.append((USE, held[address], streams.setdefault(size, len(streams)), 0))
        elif action == _STEP and rows and rows[-1][0] != STEP:
            rows.append((STEP, 0, 0, 0))
    return Trace.of_rows(rows, name=name, made=made, model=model)


def open_trace(path: Path, model: str) -> Callable[[Sequence[Sequence[int]]], None]:
    """Return the function that writes the trace of a history to a file.

    Raises:
        OSError: the file cannot be written there.
    """
    check_output(path)
    return lambda events: _write(path, events, model)


def _write(path: Path, events: Sequence[Sequence[int]], model: str) -> None:
    write(from_events(events, name=path.stem, made="recorded", model=model), path)


_EMPTY = "no trace written: the program allocated nothing on the chip"


class Recording:
    """A recording of this process, started at construction. Raises TraceError without a chip."""

    def __init__(self) -> None:
        import torch  # noqa: F401  registers the chip

        import isthmus

        if not isthmus.status().registered:
            raise TraceError(f"the chip is not registered: {isthmus.status().reason}")
        from isthmus import _C
        from isthmus.chip.memory.history import losses

        self._core: Any = _C
        self._losses = losses
        self._losses_before = losses()
        self._core.start_memory_history(True, "", False, sys.maxsize, True, [])

    def is_cut_short(self) -> bool:
        """Return whether the program ended or limited the history itself."""
        return self._losses() > self._losses_before

    def is_empty(self) -> bool:
        """Return whether nothing has been allocated so far."""
        return not any(
            (self._core.memory_events(device)[0] == _ALLOC).any()
            for device in range(self._core.device_count())
        )

    def stop(self, *, name: str, made: str) -> Trace:
        """Stop, and return the trace of the device with the most events."""
        self._core.stop_memory_history()
        columns = [self._core.memory_events(device) for device in range(self._core.device_count())]
        device = max(range(len(columns)), key=lambda index: len(columns[index][0]))
        events = list(zip(*(column.tolist() for column in columns[device]), strict=True))
        return from_events(events, name=name, made=made, model=f"recorded on chip:{device}")


def main(arguments: list[str]) -> None:
    """Record the program until it exits in any way."""
    output, program = Path(arguments[0]), arguments[1:]
    try:
        recording = Recording()
    except TraceError as error:
        sys.exit(f"isthmus: {error}")

    def finish() -> None:
        if recording.is_empty():
            print(f"isthmus: {_CUT_SHORT if recording.is_cut_short() else _EMPTY}", file=sys.stderr)
            return
        trace = recording.stop(name=output.stem, made=f"isthmus memory trace record {shlex.join(program)}")
        try:
            size = write(trace, output)
        except (OSError, TraceError) as error:
            print(f"isthmus: {error}", file=sys.stderr)
            return
        said = f"{output}: {len(trace)} events in {trace.steps} steps, {size} bytes"
        print(f"isthmus: {said}", file=sys.stderr)
        if recording.is_cut_short():
            print(f"isthmus: {output}: {_CUT_SHORT}", file=sys.stderr)

    atexit.register(finish)
    from isthmus.launch.main import main as run

    try:
        run(program)
    except SystemExit as end:
        if end.code:
            raise
    if recording.is_cut_short() or recording.is_empty():  # finish() can no longer set the status
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
