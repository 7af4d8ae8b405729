"""Check the built site in headless Chromium: `python -m tools.site.check`.

Every page must load without console errors, have no broken link or anchor, link to the other language and fit a
phone's width. The search must find names and Chinese terms.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import re
import shutil
import sys
import tempfile
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

SITE = Path(__file__).resolve().parents[2] / "build" / "site"
PHONE = (390, 844)  # width and height in CSS pixels
# Search terms and the page that must be found. Chinese terms are searched on the Chinese site.
SEARCHES = {
    "all_reduce": "reference/collectives.html",
    "dispatch_stats": "reference/routes.html",
    "集合通信": "zh/guides/parallel.html",
    "重计算": "zh/guides/megatron.html",
    "显存": "zh/guides/memory.html",
}


class Page(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the links and anchors of a tag."""
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


def broken_links(site: Path) -> Iterator[str]:
    """Yield links within the site to missing files or anchors."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html")) if "_static" not in path.parts}
    for path, page in pages.items():
        for link in sorted(page.links):
            target = urllib.parse.urlsplit(link)
            if target.scheme or target.netloc or link == "#":
                continue
            found = (path.parent / urllib.parse.unquote(target.path)).resolve() if target.path else path
            anchor = urllib.parse.unquote(target.fragment)
            if not found.is_file():
                yield f"{path.relative_to(site)}: {link}: no such file"
            elif anchor and found in pages and anchor not in pages[found].anchors:
                yield f"{path.relative_to(site)}: {link}: no such anchor"


@contextmanager
def serve(site: Path) -> Iterator[str]:
    """Serve the site on a local web server, which its search needs; yield the address."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(site))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()


@contextmanager
def browser() -> Iterator[Any]:
    """Start headless Chromium with Debian's chromedriver."""
    from selenium import webdriver

    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for flag in (
            "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-dev-shm-usage "
            "--disable-background-networking --disable-component-update --disable-sync "
            f"--hide-scrollbars --user-data-dir={profile}"
        ).split():
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
        driver = webdriver.Chrome(options=options, service=service)
        try:
            yield driver
        finally:
            driver.quit()


def page_problems(driver: Any, address: str, names: list[str]) -> Iterator[str]:
    """Yield console errors, pages wider than a phone, and pages without a link to the other language."""
    size = {"width": PHONE[0], "height": PHONE[1], "deviceScaleFactor": 1, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for name in names:
        driver.get(address + name)
        for entry in driver.get_log("browser"):
            if entry["level"] in ("SEVERE", "WARNING"):
                yield f"{name}: {entry['message']}"
        width = driver.execute_script("return document.documentElement.scrollWidth")
        if width > PHONE[0]:
            yield f"{name}: {width} pixels wide on a phone of {PHONE[0]}"
        if not driver.execute_script("return !!document.querySelector('.language-link')"):
            yield f"{name}: no link to the other language"
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def search_problems(driver: Any, address: str) -> Iterator[str]:
    """Yield searches that do not find their page."""
    from selenium.webdriver.support.ui import WebDriverWait

    for term, page in SEARCHES.items():
        root = "zh/" if page.startswith("zh/") else ""
        driver.get(f"{address}{root}search.html?q={urllib.parse.quote(term)}")
        done = "return /found|搜索|搜尋|检索|匹配/.test(document.querySelector('.search-summary')?.textContent || '')"
        WebDriverWait(driver, 60).until(lambda each, script=done: each.execute_script(script))
        links = driver.execute_script(
            "return [...document.querySelectorAll('#search-results li a')].map(a => a.href)"
        )
        if not any(re.sub(r"[?#].*", "", link).endswith(page) for link in links):
            yield f"search for {term}: {page} is not among {len(links)} results"


def problems(site: Path) -> Iterator[str]:
    """Yield all problems of a built site."""
    yield from broken_links(site)
    names = sorted(
        path.relative_to(site).as_posix() for path in site.rglob("*.html") if "_static" not in path.parts
    )
    with serve(site) as address, browser() as driver:
        yield from page_problems(driver, address, names)
        yield from search_problems(driver, address)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=Path, nargs="?", default=SITE)
    site = parser.parse_args().site.resolve()
    for command in ("chromium", "chromedriver"):
        if not shutil.which(command):
            print(
                f"{command} is not on PATH; on Debian: apt-get install chromium chromium-driver",
                file=sys.stderr,
            )
            return 2
    found = 0
    for problem in problems(site):
        found += 1
        print(problem)
    print(f"{found} problems")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
