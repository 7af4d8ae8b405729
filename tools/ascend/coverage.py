"""Counts which of the aclnn functions that a torch_npu wheel names libopapi.so has.

Usage: python -m tools.ascend.coverage WHEEL [--missing]
"""

import argparse
import re
import zipfile
from pathlib import Path

from tools.ascend.table import rows

NAME = re.compile(rb"\baclnn([A-Z]\w*?)GetWorkspaceSize\b")


def named_by(wheel: Path) -> set[str]:
    """Return the functions that the libraries of a wheel look up, without `aclnn`."""
    with zipfile.ZipFile(wheel) as archive:
        texts = [archive.read(name) for name in archive.namelist() if name.endswith(".so")]
    return {
        match[1].decode()
        for text in texts
        for match in NAME.finditer(text)
        if b"\0aclnn" + match[1] + b"\0" in text
    }


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--missing", action="store_true", help="print the names that are missing")
    options = parser.parse_args()
    named, implemented = named_by(options.wheel), {row.name for row in rows()}
    print(
        f"{len(named & implemented)} of {len(named)} functions that {options.wheel.name} names are implemented"
    )
    if unnamed := implemented - named:
        print(f"not named by it: {', '.join(sorted(unnamed))}")
    if options.missing:
        print("\n".join(sorted(named - implemented)))


if __name__ == "__main__":
    main()
