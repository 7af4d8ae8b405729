"""Regenerate every generated page and file: ``python -m tools.docs [--check] [generator ...]``, or ``make docs``.

``--check`` writes nothing; it lists the stale files and exits with 1 if there are any. A generator is a module whose
function ``files()`` returns the text of each file it generates. Results are not measured here, only drawn.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

if __name__ == "__main__":  # a test that imports this has warnings
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # PyTorch warns about some of the samples

import torch  # noqa: F401 - before isthmus.chip, which it loads

from isthmus import opset
from isthmus_common.files import make_folder, write_file
from tools.repository import ROOT

# The order matters: the operator pages are generated from the schemas.
GENERATORS = (
    "tools.opset.torchgen_schemas",
    "tools.opset.refused_dtypes",
    "tools.opset.pages",
    "tools.pages.torch_chip",
    "tools.pages.cuda_only",
    "tools.pages.migrate_rules",
    "tools.pages.architecture",
    "tools.pages.measurements",
)


def stale(generator: str) -> dict[Path, str]:
    """Return the stale files of a generator, each with its current text."""
    files: dict[Path, str] = importlib.import_module(generator).files()
    return {path: text for path, text in files.items() if not path.exists() or path.read_text() != text}


def main(arguments: list[str]) -> int:
    """Write or list the stale files; return the exit status."""
    check = "--check" in arguments
    found = False
    for generator in [each for each in arguments if each != "--check"] or GENERATORS:
        for path, text in stale(generator).items():
            found = True
            print(f"{'stale' if check else 'written'}: {path.relative_to(ROOT)}")
            if not check:
                make_folder(path.parent)
                write_file(path, text.encode())
                opset.forget()  # the next generators read the new schemas
    return int(check and found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
