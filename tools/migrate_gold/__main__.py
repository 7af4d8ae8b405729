"""Compare `isthmus migrate convert` with people's patches: ``python -m tools.migrate_gold MIRRORS``.

MIRRORS is a folder of git repositories (tools/mirrors.py); pairs.py lists the files and the verdicts.
docs/results/migrate-gold.md is written.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import io
import re
import subprocess
import sys
import tempfile
import tokenize
from pathlib import Path

from isthmus_migrate.convert.project import Converted, Request, convert
from tools import mirrors
from tools.migrate_gold import page
from tools.migrate_gold.page import Row, Side
from tools.migrate_gold.pairs import PAIRS, REPOSITORY, Pair

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "migrate-gold.md"
_NAMES = re.compile(r"cuda|nccl|mps(?![a-z])", re.IGNORECASE)
_DIGITS = 12


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.migrate_gold", description=__doc__)
    parser.add_argument("mirrors", type=Path, help="a folder of git repositories")
    parser.add_argument(
        "--diff", metavar="WORD", help="print both patches of files with this word in their path"
    )
    return parser.parse_args()


def convert_file(place: Path, pair: Pair, folder: Path) -> Converted:
    """Convert a file among the Python sources of its folder, at the commit before the patch."""
    mirrors.extract(place, pair.before, folder, (".py",), f"{Path(pair.file).parent}/")
    root = (folder / pair.file).parent
    changed = (each for each in convert(root, Request(), processes=1) if each.path == folder / pair.file)
    return next(changed)


def side(before: str, after: str) -> Side:
    """Return what can be stated about a patch from its text."""
    added = removed = 0
    for line in difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""):
        added += line.startswith("+") and not line.startswith("+++")
        removed += line.startswith("-") and not line.startswith("---")
    compiles = mirrors.compiles(after)
    return Side(added, removed, compiles, _naming(after) if compiles else 0)


def _naming(text: str) -> int:
    """Return the number of lines whose names or strings, not comments, have the name of CUDA, NCCL or MPS."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return len(
        {each.start[0] for each in tokens if each.type != tokenize.COMMENT and _NAMES.search(each.string)}
    )


def examine(place: Path, pair: Pair, shows: bool) -> Row:
    """Convert the file of a pair and compare it with the person's."""
    with tempfile.TemporaryDirectory(prefix="migrate-gold-") as folder:
        ours = convert_file(place, pair, Path(folder).resolve())
    before, after = ours.before.decode(), ours.after.decode()
    person = mirrors.git(place, "show", f"{pair.after}:{pair.moved or pair.file}").decode()
    if shows:
        for name, text in (("person", person), ("convert", after)):
            lines = difflib.unified_diff(before.splitlines(), text.splitlines(), "before", name, lineterm="")
            print("\n".join(lines))
    left = [
        f"{each.line}: {each.severity.value}: {each.subject} {each.message}; {each.advice}"
        for each in ours.findings
        if not each.edits and each.severity.value != "advice"
    ]
    digest = hashlib.sha256(ours.after).hexdigest()[:_DIGITS]
    return Row(pair, side(before, person), side(before, after), left, digest)


def main(asked: argparse.Namespace) -> None:
    place = mirrors.repository(asked.mirrors.resolve(), REPOSITORY)
    rows = [examine(place, pair, bool(asked.diff) and asked.diff in pair.file) for pair in PAIRS]
    PAGE.write_text(page.page(rows))
    print(f"written: {PAGE}")
    for row in rows:
        if row.digest != row.pair.digest:
            print(
                f"{row.pair.file}: the verdict is about another converted source; read it again ({row.digest})"
            )


if __name__ == "__main__":
    try:
        main(options())
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        sys.exit(f"migrate_gold: {error}")
