"""Put the pages of one language into a folder for Sphinx, with links that work on the site.

Pages link to each other as files, so that links also work in the repository. A link outside docs/ leads to a page of
the site if one exists (headers, benchmarks) and becomes plain text otherwise.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from tools.repository import CORE, ROOT
from tools.site.api import pages as api_pages

DOCS = ROOT / "docs"
LINK = re.compile(
    r"\[(?P<label>[^\]\n]*(?:\n[^\]\n]*)?)\]\((?P<target>(?!https?:|#)[^)#\s]+)(?P<anchor>#[^)\s]*)?\)"
)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CHINESE = r"\u3000-\u303f\u4e00-\u9fff\uff00-\uffef"  # characters and punctuation
# A line break between two Chinese characters; HTML would show it as a space.
CHINESE_BREAK = re.compile(rf"(?<=[{CHINESE}])\n(?=[{CHINESE}])")
HEADERS = ("driver.h", "operators.h")

# Files outside docs/ that are pages of the site.
OUTSIDE = {
    ROOT / "README.md": "start.md",
    ROOT / "README.zh.md": "zh/start.md",
    ROOT / "CONTRIBUTING.md": "contributing.md",
    ROOT / "benchmarks" / "README.md": "results/benchmarks.md",
    **{CORE / "csrc" / name: f"reference/headers/{name}.md" for name in HEADERS},
}


# Pages outside docs/ that an index lists on the site only.
GENERATED = {
    "index.md": ["start", "api/index", "contributing"],
    "zh/index.md": ["start"],
    "reference/index.md": [f"headers/{name}" for name in HEADERS],
    "results/index.md": ["benchmarks"],
}


def stage(language: str, folder: Path) -> None:
    """Write the pages of a language ("en" or "zh") into a folder, and remove stale ones."""
    wanted = {folder / name: text for name, text in _pages(language)}
    for path, text in wanted.items():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for path in folder.rglob("*.*"):
        if path.is_file() and path not in wanted:
            path.unlink()


def _pages(language: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each page and picture in the site of its language, and its text."""
    base = DOCS / "zh" if language == "zh" else DOCS
    for path in sorted(base.rglob("*.md")):
        if language == "zh" or not path.is_relative_to(DOCS / "zh"):
            name = site_name(path)
            yield name.removeprefix("zh/"), rewrite_links(path, name)
    for path in sorted((base / "pictures").glob("*.svg")):
        yield f"pictures/{path.name}", path.read_text()
    for path, name in OUTSIDE.items():
        if name.startswith("zh/") == (language == "zh"):
            yield (
                name.removeprefix("zh/"),
                _header(path) if path.suffix == ".h" else rewrite_links(path, name),
            )
    if language == "en":
        yield from api_pages()


def _header(path: Path) -> str:
    """Return a page that shows a C header."""
    return f"# {path.name}\n\n```c\n{path.read_text()}```\n"


def site_name(path: Path) -> str:
    """Return the name of a file's page in the site; README.md of a folder is its index."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    name = path.relative_to(DOCS).as_posix()
    return re.sub(r"README\.md$", "index.md", name)


def rewrite_links(path: Path, name: str) -> str:
    """Return the page's text with the site's links; an index also gets its navigation."""
    text = path.read_text()
    code = [match.span() for match in FENCE.finditer(text)]

    def link(match: re.Match[str]) -> str:
        if any(start <= match.start() < end for start, end in code):
            return match.group()
        label, target, anchor = match["label"], match["target"], match["anchor"] or ""
        found = (path.parent / target).resolve()
        if not found.is_relative_to(DOCS) and found not in OUTSIDE:
            return label
        page = site_name(found)
        relative = os.path.relpath(page, Path(name).parent)
        if page.startswith("zh/") != name.startswith("zh/"):  # another site: linked by address
            relative = re.sub(r"\.md$", ".html", relative)
            return f'<a href="{relative}{anchor}">{_inline(label)}</a>'
        return f"[{label}]({relative}{anchor})"

    text = CHINESE_BREAK.sub("", LINK.sub(link, text))
    return text + _navigation(text, name) if name.endswith("index.md") else text


def _navigation(text: str, name: str) -> str:
    """Return the toctrees of an index: the pages of its folder and the indexes of subfolders that it links to.

    The pages of a section of the index stand together, under its heading.
    """
    seen: set[str] = set()
    trees = []
    for section in re.split(r"^(?=## )", text, flags=re.MULTILINE):
        heading = re.match(r"## (.+)", section)
        linked = [match["target"].removesuffix(".md") for match in LINK.finditer(section)]
        pages = [page for page in dict.fromkeys(linked) if re.fullmatch(r"[^./]+(/index)?", page)]
        trees.append(_toctree([page for page in pages if page not in seen], heading[1] if heading else ""))
        seen.update(pages)
    return "".join([*trees, _toctree(GENERATED.get(name, []), "")])


def _toctree(pages: list[str], caption: str) -> str:
    """Return the toctree of these pages; an empty text without any."""
    title = f":caption: {caption}\n" if caption else ""
    return (
        f"\n```{{toctree}}\n:hidden:\n:maxdepth: 2\n{title}\n" + "\n".join(pages) + "\n```\n" if pages else ""
    )


def _inline(label: str) -> str:
    """Convert a label to HTML; code spans are the only markup in labels."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", label)
