"""The documentation site: its pages, links, search and width in a real browser, and how pages are staged."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from tests.helpers.children import output
from tools.repository import ROOT
from tools.site import api, stage

_PAGES = "import json; from tools.site import api; print(json.dumps(dict(api.pages())))"


def test_links_out_of_the_documentation_lead_to_pages_of_the_site():
    routes = stage.DOCS / "reference" / "routes.md"
    text = stage.rewrite_links(routes, "reference/routes.md")
    assert "](../results/benchmarks.md)" in text
    assert "../../benchmarks" not in text


def test_a_link_to_a_folder_of_sources_becomes_text():
    page = stage.DOCS / "chip-makers" / "write-an-operator-library.md"
    text = stage.rewrite_links(page, "chip-makers/write-an-operator-library.md")
    assert "\n`examples/sample_chip` is a complete" in text


def test_a_link_to_the_other_language_is_an_address():
    assert '<a href="zh/index.html">' in stage.rewrite_links(stage.DOCS / "index.md", "index.md")


def test_an_index_lists_its_pages_under_its_headings():
    text = stage.rewrite_links(stage.DOCS / "guides" / "index.md", "guides/index.md")
    trees = [tree.partition("\n```")[0].split("\n") for tree in text.split("```{toctree}\n")[1:]]
    options = [":hidden:", ":maxdepth: 2", ":caption: Fit a job in memory", ""]
    assert [*options, "memory", "plan", "memory-traces"] in trees
    pages = sorted(page for tree in trees for page in tree[4:])
    assert pages == sorted(path.stem for path in (stage.DOCS / "guides").glob("*.md") if path.stem != "index")


def test_pictures_are_staged_in_their_language(tmp_path: Path):
    stage.stage("zh", tmp_path)
    picture = stage.DOCS / "zh" / "pictures" / "architecture.svg"
    assert (tmp_path / "pictures" / "architecture.svg").read_text() == picture.read_text()
    assert "](pictures/architecture.svg)" in (tmp_path / "start.md").read_text()


def test_every_page_is_staged_and_stale_ones_are_removed(tmp_path: Path):
    (tmp_path / "old.md").write_text("# Old\n")
    stage.stage("zh", tmp_path)
    expected = {path.relative_to(stage.DOCS / "zh") for path in (stage.DOCS / "zh").rglob("*.md")}
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*.md")} == expected | {Path("start.md")}


def test_every_module_of_the_reference_has_a_page_of_its_names():
    # Run in a child: other tests may have imported megatron.core, before which isthmus.megatron must come.
    pages = json.loads(output(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{_PAGES}").splitlines()[-1])
    assert set(pages) == {"api/index.rst", *(f"api/{module.name}.rst" for module in api.MODULES)}
    assert all(".. auto" in text for name, text in pages.items() if name != "api/index.rst")
    chip = pages["api/torch.chip.rst"].split()
    assert {"current_device", "Stream", "dispatch_stats", "manual_seed"} <= set(chip)
    assert not {"ModuleType", "sys", "report_at_exit", "memory_allocated"} & set(chip)


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_works_in_a_browser(tmp_path: Path):
    for module in ("sphinx", "myst_parser", "pydata_sphinx_theme", "selenium"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed; `make site` installs it")
    for command in ("chromium", "chromedriver"):
        if shutil.which(command) is None:
            pytest.skip(f"{command} is not on PATH; on Debian: apt-get install chromium chromium-driver")
    from tools.site.__main__ import build
    from tools.site.check import problems

    assert build(tmp_path / "site", tmp_path / "source") == 0
    assert list(problems(tmp_path / "site")) == []
