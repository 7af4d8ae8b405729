"""The command ``isthmus triton``."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="isthmus triton", description="Tools for Triton kernels.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    text = (
        "Run each launch of a program compiled, interpreted and by PyTorch, and print the first difference."
    )
    compare = commands.add_parser("compare", help=text, description=text)
    compare.add_argument(
        "target", metavar="FILE[::FUNCTION]",
        help="a file whose function main, or the named one, launches kernels; a function test... runs under pytest",
    )  # fmt: skip
    compare.add_argument("--every", action="store_true", help="all launches of a kernel, not only the first")
    options = parser.parse_args(arguments)
    from isthmus_triton.compare import compare as run

    launches = run(_program(options.target), options.every)
    for each in launches:
        print("\n".join(each.lines()))
    if not launches:
        print(f"isthmus triton compare: {options.target} launches no kernel", file=sys.stderr)
    is_close = all(each.is_close for launch in launches for each in launch.differences())
    return 0 if launches and is_close else 1


def _program(target: str) -> Callable[[], object]:
    """The function that a target names."""
    file, _, name = target.partition("::")
    path = Path(file).resolve()
    if not path.is_file():
        sys.exit(f"isthmus triton compare: no such file: {file}")
    if name.startswith("test"):
        try:
            import pytest
        except ImportError:
            sys.exit("isthmus triton compare: a test needs pytest: pip install pytest")
        return lambda: pytest.main(["-q", "--no-header", f"{path}::{name}"])
    sys.path.insert(0, str(path.parent))
    function = getattr(importlib.import_module(path.stem), name or "main", None)
    if not callable(function):
        sys.exit(f"isthmus triton compare: {file} has no function {name or 'main'}")
    return function
