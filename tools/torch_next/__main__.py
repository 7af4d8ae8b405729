"""Print what moved between the PyTorch of this environment and another one, of what the project stands on.

``python -m tools.torch_next 2.16.0`` fetches the wheel of that version (tools/torches.py): neither version is
imported. ``python -m tools.torch_next FOLDER [FOLDER]`` compares folders that hold
``torch/`` and ``torchgen/``, such as a site-packages; without a second one, the first with this environment. It
prints headers whose declarations changed, Python names that are gone or have other parameters, and operators whose
schemas or kernels changed, each with the files that use it.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from isthmus_common.pytorch import version_of
from tools.torch_next import used
from tools.torch_next.python_names import Python
from tools.torches import fetch, has_torch

SHOWN = 12  # changed lines of one header


def declarations(path: Path) -> list[str]:
    """Return the lines of a header without comments and empty lines."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [line.strip() for raw in text.splitlines() if (line := re.sub(r"//.*", "", raw).rstrip()).strip()]


def changed_headers(old: Path, new: Path) -> Iterator[str]:
    """Yield a paragraph per included header that is gone or has other declarations."""
    for header, users in sorted(used.headers().items()):
        before, after = (site / "torch" / "include" / header for site in (old, new))
        if not before.is_file():
            continue
        if not after.is_file():
            yield f"{header}: gone; used by {listed(users)}"
            continue
        lines = list(difflib.unified_diff(declarations(before), declarations(after), n=0, lineterm=""))[2:]
        moved = [line for line in lines if not line.startswith("@@")]
        if moved:
            more = [f"... {len(moved) - SHOWN} more lines"] * (len(moved) > SHOWN)
            shown = "\n    ".join([*moved[:SHOWN], *more])
            yield f"{header}: {len(moved)} lines; used by {listed(users)}\n    {shown}"


def changed_names(old: Path, new: Path) -> Iterator[str]:
    """Yield a line per Python name that is gone or has other parameters."""
    before, after = Python(old), Python(new)
    for name, users in sorted(used.names().items()):
        was, is_now = before.describe(name), after.describe(name)
        if was in (None, "unknown") or was == is_now or is_now == "unknown":
            continue
        yield f"{name}: {was} -> {is_now or 'gone'}; used by {listed(users)}"


def functions(site: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of native_functions.yaml, by operator with overload."""
    path = site / "torchgen" / "packaged" / "ATen" / "native" / "native_functions.yaml"
    rows = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return {row["func"].partition("(")[0]: row for row in rows}


def changed_operators(old: Path, new: Path) -> Iterator[str]:
    """Yield a line per operator that is new, gone, or has another schema or other kernels of the CPU."""
    before, after = functions(old), functions(new)
    named = used.operators()
    for name in sorted(before.keys() | after.keys()):
        base = name.partition(".")[0]
        mark = " (named here)" if base in named else ""
        if name not in after:
            yield f"{name}: gone{mark}"
        elif name not in before:
            yield f"{name}: new: {after[name]['func']}{mark}"
        elif before[name]["func"] != after[name]["func"]:
            yield f"{name}: {before[name]['func']}\n    -> {after[name]['func']}{mark}"
        else:
            was, is_now = (cpu_kernels(rows[name]) for rows in (before, after))
            if was != is_now:
                yield f"{name}: kernels {was or 'none'} -> {is_now or 'none'}{mark}"


def cpu_kernels(row: dict[str, Any]) -> str:
    """Return the keys of a row under which a kernel serves the CPU."""
    keys = [key.strip() for entry in row.get("dispatch", {}) for key in entry.split(",")]
    return ", ".join(sorted(key for key in keys if "CPU" in key or key.startswith("Composite")))


def listed(users: Iterable[str]) -> str:
    """Return the first users, and how many more there are."""
    first, *more = sorted(users)
    return first + (f" and {len(more)} more" if more else "")


def main(arguments: list[str]) -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(prog="python -m tools.torch_next", description=__doc__)
    parser.add_argument("sites", nargs="+", metavar="VERSION|FOLDER")
    words = parser.parse_args(arguments).sites
    sites = [Path(word) if has_torch(Path(word)) else fetch(word) for word in words]
    old, new = sites if len(sites) == 2 else [Path(sysconfig.get_path("purelib")), *sites]
    print("torch", " -> ".join(version_of(site / "torch") for site in (old, new)))
    for title, lines in (
        ("Headers", changed_headers(old, new)),
        ("Python names", changed_names(old, new)),
        ("Operators", changed_operators(old, new)),
    ):
        found = list(lines)
        print(f"\n{title}: {len(found)}", *found, sep="\n  ")


if __name__ == "__main__":
    main(sys.argv[1:])
