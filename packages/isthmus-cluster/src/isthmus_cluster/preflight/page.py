"""The report of ``isthmus cluster preflight`` as one HTML page, which loads no other file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isthmus_cluster.preflight.checks import (
    FIGURES,
    Problem,
    Results,
    Thresholds,
    format_rate,
    offsets,
    slow_figures,
)
from isthmus_common.files import write_file
from isthmus_common.html import render
from isthmus_common.text import count
from isthmus_common.units import GIB


def write(
    path: Path, name: str, results: Results, problems: Sequence[Problem], thresholds: Thresholds
) -> None:
    """Write the page.

    Args:
        path: of the file, in an existing folder.
        name: of the cluster.
        results: what hosts and cards have answered.
        problems: what was found in them.
        thresholds: what is marked as slow.
    """
    text = render(
        "isthmus_cluster/preflight/page.html.j2",
        title=f"Preflight of {name}: {count(len(problems), 'problem')}",
        summary=f"{count(len(results.hosts), 'host')}, {time.strftime('%Y-%m-%d %H:%M:%S %z')}",
        problems=[
            [each.state.value, each.check, ", ".join(each.where), each.text, each.remedy] for each in problems
        ],
        hosts=_hosts(results),
        cards=_cards(results, thresholds),
        figures=[f"{name}, {unit}" for name, unit in FIGURES.items()],
        versions=_versions(results),
    )
    write_file(path, text.encode())


def _hosts(results: Results) -> list[list[str]]:
    clocks = offsets(results.clocks)
    rows = []
    for host in results.hosts:
        space = results.facts.get(host, {}).get("space", {})
        offset, uncertainty = clocks.get(host, (0.0, 0.0))
        rows.append(
            [
                host,
                results.lost.get(host, "answered"),
                f"{offset * 1e3:+.2f} ± {uncertainty * 1e3:.2f}" if host in clocks else "",
                "; ".join(f"{place} {free / GIB:.1f}" for place, free in space.items()),
            ]
        )
    return rows


def _cards(results: Results, thresholds: Thresholds) -> list[dict[str, Any]]:
    """Return the figures of each card and host, each with its share of the highest, and why it is slow."""
    marked = slow_figures(results.cards, thresholds)
    most = {
        name: max((each.get(name, 0.0) for each in results.cards.values()), default=0.0) for name in FIGURES
    }
    return [
        {
            "name": place,
            "chip": each["chip"],
            "cells": [
                {
                    "text": format_rate(each[name]) if name in each else "",
                    "share": round(100 * each[name] / most[name]) if name in each else 0,
                    "slow": marked.get(place, {}).get(name, ""),
                }
                for name in FIGURES
            ],
        }
        for place, each in results.cards.items()
    ]


def _versions(results: Results) -> list[list[str]]:
    """Return a row for each thing that should be equal: its name, its most frequent values, and their hosts."""
    rows = []
    for kind in ("versions", "limits"):
        for name in dict.fromkeys(name for each in results.facts.values() for name in each[kind]):
            hosts: dict[str, int] = {}
            for each in results.facts.values():
                value = each[kind].get(name, "absent")
                hosts[value] = hosts.get(value, 0) + 1
            rows.append([name, "; ".join(f"{value} ({count(n, 'host')})" for value, n in hosts.items())])
    return rows
