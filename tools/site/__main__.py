"""Build the documentation site into build/site, English at its root and Chinese in zh/: `python -m tools.site`.

Sphinx warnings are errors. Unchanged pages are not rebuilt.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sphinx.cmd.build import build_main

from tools.site.stage import stage

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def build(output: Path, work: Path) -> int:
    """Build both languages; return the first exit code that is not 0."""
    for language, folder in (("en", output), ("zh", output / "zh")):
        source = work / language
        stage(language, source)
        flags = ["-W", "--keep-going", "--quiet", "--jobs", "auto", "--conf-dir", str(HERE)]
        if code := build_main(
            [
                *flags,
                "--tag",
                language,
                "--doctree-dir",
                str(work / "doctrees" / language),
                str(source),
                str(folder),
            ]
        ):
            return code
    print(f"documentation: {output / 'index.html'}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "site")
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build" / "site-source", help="folder of staged pages and caches"
    )
    options = parser.parse_args()
    return build(options.output.resolve(), options.work.resolve())


if __name__ == "__main__":
    raise SystemExit(main())
