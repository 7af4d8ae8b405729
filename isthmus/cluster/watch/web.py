"""The web page of a view, its data (``/state.json``, ``/history.json``) and its metrics (``/metrics``)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from isthmus._support.html import render
from isthmus.cluster.monitor import metrics as of_cards
from isthmus.cluster.monitor import server, table
from isthmus.cluster.watch.faults import spans
from isthmus.cluster.watch.state import COLUMNS, View, Watcher

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
    return "".join(f"{line}\n" for line in _metrics(view)) + of_cards.metrics(view.cards)


def _metrics(view: View) -> Iterator[str]:
    yield from _metric("isthmus_watch_time_seconds", "gauge", "Time of the last look.", [("", view.time)])
    known = [
        (f'{{rank="{each.rank}",host="{_escaped(each.host)}"}}', each)
        for each in view.ranks
        if each.step >= 0
    ]
    for name, what in _RANK.items():
        values = [(labels, float(getattr(each, name.removesuffix("_seconds")))) for labels, each in known]
        yield from _metric(f"isthmus_rank_{name}", "gauge", what, values)
    states = [each.state for each in view.ranks]
    counted = [(f'{{state="{each}"}}', float(states.count(each))) for each in sorted(set(states))]
    yield from _metric("isthmus_ranks", "gauge", "Ranks by state.", counted)
    events = [(f'{{kind="{_escaped(kind)}"}}', float(number)) for kind, number in view.counts.items()]
    yield from _metric("isthmus_events_total", "counter", "Faults and what was done, by kind.", events)


def _metric(name: str, kind: str, help_text: str, values: list[tuple[str, float]]) -> Iterator[str]:
    yield f"# HELP {name} {help_text}"
    yield f"# TYPE {name} {kind}"
    yield from (f"{name}{labels} {value!r}" for labels, value in values)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


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
    page = render("cluster/watch/page.html.j2", title="Cluster watch", columns=COLUMNS, cards=table.HEAD)

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
