"""Functions over many items in several processes, with results in the order of the items."""

import itertools
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from isthmus_common.parent import end_with_parent
from isthmus_formats.data.records import DataError

Item = TypeVar("Item")
Result = TypeVar("Result")


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _begin() -> None:
    """Leave interrupts to the parent, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(signal.SIGKILL)


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], processes: int
) -> Iterator[tuple[Item, Result]]:
    """Yield each item with the result of the function; a few items per process are in memory.

    Args:
        function: can be pickled; with one process it is called in this one.
        items: can be pickled.
        processes: number of processes.

    Raises:
        DataError: a process was killed.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one process is one core
    if processes == 1:
        yield from ((item, function(item)) for item in items)
        return
    # A forked child would inherit the threads' locks of libraries that this process has used.
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _begin)
    try:
        rest = iter(items)
        waiting = deque((item, pool.submit(function, item)) for item in itertools.islice(rest, 2 * processes))
        while waiting:
            item, future = waiting.popleft()
            yield item, future.result()
            waiting.extend((item, pool.submit(function, item)) for item in itertools.islice(rest, 1))
    except BrokenProcessPool:
        raise DataError(
            "a worker process was killed, perhaps for lack of memory; give fewer --workers"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
