"""Run the tests of libraries of Triton kernels under ``isthmus run``: ``python -m tools.triton_libraries MIRRORS``.

MIRRORS holds clones of flagos-ai/FlagGems, linkedin/Liger-Kernel and fla-org/flash-linear-attention. Results are
appended to a file as they arrive, so that an interrupted run can be resumed; the page of each library in docs/results
is generated from it. Failures do not change the exit status.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools import mirrors
from tools.ascend.vendor import runner
from tools.repository import ROOT
from tools.triton_libraries.libraries import LIBRARIES, Library
from tools.triton_libraries.page import page

BUILD = ROOT / "build/triton-libraries"
PACKAGES = BUILD / "packages"
PYTEST = ("-m", "isthmus", "run", "python", "-m", "pytest", "-p", "tools.triton_libraries.sample")


def suite(library: Library) -> runner.Suite:
    """Return the tests of a library; files run in groups, in processes of their own."""
    sources = BUILD / library.name
    groups = {file: at // library.group for at, file in enumerate(library.files(sources))}
    return runner.Suite(
        sources=sources,
        folder=lambda file: sources,
        packages=lambda file: [PACKAGES, sources / library.packages, sources],
        results=BUILD / f"{library.name}.jsonl",
        group=lambda file: f"{library.name} {groups[file]}",
        settings={
            **library.settings,
            "ISTHMUS_SAMPLE": str(library.every),
            "TRITON_CACHE_DIR": str(BUILD / "cache"),
            "HOME": str(BUILD / "home"),
        },
        command=(sys.executable, *PYTEST, *library.options),
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.triton_libraries", description=__doc__)
    parser.add_argument("mirrors", type=Path, nargs="?", help="folder of clones")
    parser.add_argument("--library", choices=[each.name for each in LIBRARIES], help="only this one")
    parser.add_argument(
        "parts", nargs="*", help="files of --library, such as tests/test_abs.py (default: all)"
    )
    runner.add_options(parser, test_seconds=120, file_seconds=600)
    return parser.parse_intermixed_args()


def _main(asked: argparse.Namespace) -> None:
    if asked.mirrors is None and not asked.report:
        raise FileNotFoundError("set MIRRORS to a folder of clones: make triton-libraries MIRRORS=path")
    for library in LIBRARIES:
        if asked.library not in (None, library.name):
            continue
        place = BUILD / library.name
        if not asked.report:
            repository = mirrors.repository(asked.mirrors, library.repository)
            mirrors.extract_once(repository, library.revision, place, library.endings, *library.parts)
        files = library.files(place)
        rows = runner.run(
            suite(library), argparse.Namespace(**{**vars(asked), "parts": asked.parts or files})
        )
        if rows:
            library.page.write_text(page(library, rows, len(files)))
            print(f"written: {library.page.relative_to(ROOT)}")


if __name__ == "__main__":
    try:
        _main(_options())
    except FileNotFoundError as error:
        sys.exit(f"triton-libraries: {error}")
