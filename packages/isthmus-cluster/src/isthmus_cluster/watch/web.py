"""The web page of a view, its data (``/state.json``, ``/history.json``) and its metrics (``/metrics``)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from isthmus_cluster.monitor import metrics as of_cards
from isthmus_cluster.monitor import server, table
from isthmus_cluster.watch.faults import spans
from isthmus_cluster.watch.state import COLUMNS, View, Watcher
from isthmus_common.html import render

_NAMED = 8  # missing ranks that are described
_RANK = {
    "step": "Completed steps.",
    "step_time_seconds": "Time of a step.",
    "own_time_seconds": "Part of it without collectives in flight.",
    "waited_seconds": "Time in the collective in flight; 0 without one.",
    "silent_seconds": "Time without a report; 0 if the rank reports.",
}


def state(watcher: Watcher, columns: int) -> dict[str, Any]:
    """Return what the page shows as JSON values.

    Args:
        watcher: whose view is shown.
        columns: most columns of the history, the newest ones.
    """
    view = watcher.view
    collectives = [
        {
            "name": each.name,
            "group": each.group,
            "seconds": each.seconds,
            "ranks": spans(each.ranks),
            "missing": spans(each.missing),
            "who": "\n".join(
                f"rank {rank} ({view.ranks[rank].host}): {view.ranks[rank].doing}, at {view.ranks[rank].line}"
                for rank in each.missing[:_NAMED]
            ),
        }
        for each in view.collectives
    ]
    ranks = []
    for each in view.ranks:
        times = 1000 * each.step_time, 1000 * each.own_time
        ranks.append([each.rank, each.host, each.step, each.state, each.doing, *times, each.line])
    return {
        "now": time.time(),
        "time": view.time,
        "folder": view.folder,
        "summary": view.summary,
        "problems": view.problems,
        "period": watcher.period,
        "patience": 5 + 2 * watcher.pause,
        "usual": dict(zip(("step", "own"), view.usual, strict=True)),
        "ranks": ranks,
        "collectives": collectives,
        "events": view.events,
        "columns": [each._asdict() for each in view.columns[-columns:]],
        "cards": table.rows(view.cards),
    }


def metrics(view: View) -> str:
    """Return the state of ranks and cards in Prometheus's text format."""
    return "".join(_families(view)) + of_cards.metrics(view.cards)


def _families(view: View) -> Iterator[str]:
    yield of_cards.family("isthmus_watch_time_seconds", "Time of the last look.", [({}, view.time)])
    known = [each for each in view.ranks if each.step >= 0]
    for name, what in _RANK.items():
        values = [float(getattr(each, name.removesuffix("_seconds"))) for each in known]
        labels = [{"rank": each.rank, "host": each.host} for each in known]
        yield of_cards.family(f"isthmus_rank_{name}", what, zip(labels, values, strict=True))
    states = Counter(each.state for each in view.ranks)
    counted = [({"state": each}, float(number)) for each, number in sorted(states.items())]
    yield of_cards.family("isthmus_ranks", "Ranks by state.", counted)
    events = [({"kind": kind}, float(number)) for kind, number in view.counts.items()]
    yield of_cards.family("isthmus_events_total", "Faults and what was done, by kind.", events, "counter")


@contextmanager
def serve(watcher: Watcher, bind: str, port: int) -> Iterator[str]:
    """Serve the view of a watcher during a block; yields the address of the page.

    Args:
        watcher: whose view is shown.
        bind: address to listen on.
        port: to listen on; 0: any.

    Raises:
        ClusterError: the port cannot be opened.
    """
    page = render(
        "isthmus_cluster/watch/page.html.j2", title="Cluster watch", columns=COLUMNS, cards=table.HEAD
    )

    def answer(columns: int) -> tuple[str, str]:
        text = json.dumps(state(watcher, columns), allow_nan=False, separators=(",", ":"))
        return "application/json; charset=utf-8", text

    routes = {
        "/": lambda: ("text/html; charset=utf-8", page),
        "/state.json": lambda: answer(2),
        "/history.json": lambda: answer(COLUMNS),
        "/metrics": lambda: (of_cards.CONTENT_TYPE, metrics(watcher.view)),
    }
    with server.serve(port, bind, routes, _policy(page)) as address:
        yield address


def _policy(page: str) -> str:
    """Return a Content-Security-Policy that allows the page's own style and script, and requests to this server."""
    hashes = []
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        hashes.append(f"{tag}-src 'sha256-{digest}'")
    others = "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return "; ".join(["default-src 'none'", *hashes, others])
