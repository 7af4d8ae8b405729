"""Merge rank tables of servers into one of their cluster, as merge_hccl.py does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from isthmus_cluster.errors import ClusterError
from isthmus_cluster.ranktable import files
from isthmus_cluster.ranktable.check import check

Tables = list[tuple[Path, dict[str, Any]]]
_UNIQUE = ("server_id", "device_ip", "addr")


def merge(paths: Sequence[Path]) -> tuple[dict[str, Any], str]:
    """Return the table of all servers, ranks numbered in the order of the files, and the name of its file.

    Raises:
        ClusterError: a file is no valid rank table, versions differ, or a server or address occurs in two files.
    """
    tables = [(path, _read_part(path)) for path in paths]
    version = tables[0][1]["version"]
    for path, table in tables:
        if table["version"] != version:
            raise ClusterError(
                f'{path}: version: "{table["version"]}": {paths[0]} has "{version}"; merge tables of one version'
            )
    _no_conflict(tables)
    if version == "2.0":
        entries = [entry for _, table in tables for entry in table["rank_list"]]
        table = {"version": version, "status": "completed", "rank_count": len(entries), "rank_list": entries}
        return table, f"hccl_{len(tables)}s_{_number(table)}p.json"
    servers = [server for _, table in tables for server in table["server_list"]]
    merged: dict[str, Any] = {"version": version, "server_count": str(len(servers)), "server_list": servers}
    if version == "1.2":
        merged["super_pod_list"] = _super_pods(tables)
    merged["status"] = "completed"
    ranks = _number(merged)
    for problem in check(merged):
        raise ClusterError(f"{', '.join(map(str, paths))}: merged: {problem.entry}: {problem.text}")
    return merged, f"hccl_{len(servers)}s_{ranks}p.json"


def _read_part(path: Path) -> dict[str, Any]:
    """Read a table whose ranks may be any part of a cluster's: they are numbered from 0 for the check.

    merge_hccl.py accepts a number as server_count, and so does this.
    """
    table = files.read(path)
    try:
        if isinstance(table.get("server_count"), int):
            table["server_count"] = str(table["server_count"])
        _number(table)
    except (KeyError, TypeError, AttributeError):
        pass  # the check names what is missing
    for problem in check(table):
        raise ClusterError(f"{path}: {problem.entry}: {problem.text}")
    return table


def _number(table: dict[str, Any]) -> int:
    """Number the ranks of a table in their order; return how many there are."""
    is_flat = table.get("version") == "2.0"
    groups = [table["rank_list"]] if is_flat else (server["device"] for server in table["server_list"])
    number = 0
    for rank in itertools.chain.from_iterable(groups):
        rank["rank_id"] = number if is_flat else str(number)
        number += 1
    return number


def _no_conflict(tables: Tables) -> None:
    owners: dict[tuple[str, str], Path] = {}
    for path, table in tables:
        values = list(_values(table.get("rank_list") or table["server_list"]))
        for name, value in values:
            if (name, value) in owners:
                other = owners[name, value]
                twice = "the file is given twice" if path == other else f"also in {other}"
                raise ClusterError(f'{path}: {name}: "{value}": {twice}; merge each server once')
        owners |= dict.fromkeys(values, path)


def _values(found: Any) -> Iterator[tuple[str, str]]:
    """Yield the names and values that must not occur in two tables."""
    if isinstance(found, list):
        for each in found:
            yield from _values(each)
    elif isinstance(found, dict):
        for name, value in found.items():
            if name in _UNIQUE:
                yield name, value
            else:
                yield from _values(value)


def _super_pods(tables: Tables) -> list[dict[str, Any]]:
    pods: dict[str, list[dict[str, Any]]] = {}
    for _, table in tables:
        for pod in table["super_pod_list"]:
            pods.setdefault(pod["super_pod_id"], []).extend(pod["server_list"])
    return [{"super_pod_id": name, "server_list": servers} for name, servers in pods.items()]
