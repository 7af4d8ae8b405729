"""``python -m isthmus_cluster.monitor.agent``: prints a line of JSON with the state of this host's cards, repeatedly.

It ends when its standard input does. Imports no torch, no pydantic.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time

from isthmus_cluster.monitor import sources
from isthmus_cluster.monitor.card import Card, encode


def main() -> None:
    """Report until the end of standard input."""
    parser = argparse.ArgumentParser(prog="isthmus cluster monitor")
    parser.add_argument("--interval", type=float, default=2.0)
    parser.add_argument("--source", default="")
    parser.add_argument("--cards", default="", help="device ids that this host should have: 0,1,2")
    given = parser.parse_args()
    expected = [int(index) for index in given.cards.split(",") if index]
    if expected:  # a job on all cards has as many host chips
        os.environ.setdefault("ISTHMUS_HOST_DEVICES", str(max(expected) + 1))
    threading.Thread(target=_end_with_input, daemon=True).start()
    source: sources.Source | None = None
    due = time.monotonic()
    while True:
        cards: list[Card] = []
        error = ""
        try:
            source = source or sources.find(given.source)
            cards = sources.add_unreported(source(), expected)
            error = "" if cards else "no cards on this host"
        except Exception as failure:  # a vendor's library failed; the next report may be better
            source, error = None, " ".join(str(failure).split()) or type(failure).__name__
        print(encode(cards, error), flush=True)
        due = max(due + given.interval, time.monotonic())
        time.sleep(due - time.monotonic() if due > time.monotonic() else 0.0)


def _end_with_input() -> None:
    """Wait for the end of standard input; the main thread may hang in a vendor's library then."""
    while os.read(sys.stdin.fileno(), 1 << 12):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
