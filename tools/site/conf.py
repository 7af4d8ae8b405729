"""Sphinx configuration of both languages, selected by tag (en or zh)."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.site.search import Bigrams  # noqa: E402

chinese = "zh" in tags  # type: ignore[name-defined]  # noqa: F821 - Sphinx defines it

project = "Isthmus"
language = "zh_CN" if chinese else "en"
html_search_language = "zh-bigrams" if chinese else "en"
copyright = "the authors of Isthmus, Apache License 2.0"
extensions = [
    "myst_parser",
    "sphinx_copybutton",
    *([] if chinese else ["sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]),
]
root_doc = "index"
highlight_language = "text"
templates_path = ["templates"]
html_static_path = ["static"]
html_css_files = ["site.css"]
myst_heading_anchors = 3

autosummary_generate = False
autodoc_member_order = "bysource"
napoleon_use_ivar = True
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

# The copy button omits prompts and output.
copybutton_prompt_text = "$ "
copybutton_copy_empty_lines = True

html_theme = "pydata_sphinx_theme"
html_title = "Isthmus"
html_favicon = "static/isthmus.svg"
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "Isthmus", "image_light": "static/isthmus.svg", "image_dark": "static/isthmus.svg"},
    "navbar_end": ["language", "theme-switcher"],
    "navbar_persistent": ["search-button"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_nav_level": 2,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "search_bar_text": "搜索" if chinese else "Search",
}


def add_language_link(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Link each page to its counterpart, or to the other language's first page."""
    docs = ROOT / "docs"
    other = docs / page if chinese else docs / "zh" / page
    name = page if other.with_suffix(".md").exists() else "index"
    up = "../" * (page.count("/") + chinese)
    context["other_language"] = "English" if chinese else "中文"
    context["other_language_page"] = f"{up}{'' if chinese else 'zh/'}{name}.html"


def as_markup(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Convert a plain-text docstring: mark indented examples as code and escape *."""
    text = re.sub(r"(?<!:):\n\n(?=    )", "::\n\n", "\n".join(lines))
    lines[:] = re.sub(r"(?<=[(\[ ])\*(?=[,\w])", r"\\*", text).split("\n")


def setup(app: Any) -> None:
    """Connect the handlers (called by Sphinx)."""
    app.add_search_language(Bigrams)
    app.connect("html-page-context", add_language_link)
    if not chinese:
        app.connect("autodoc-process-docstring", as_markup)
