"""A Chromium for the tests of page scripts, and small pages on loopback for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from chrome import Chrome, Show, Tab, find_chromium, serve

NO_CHROMIUM = "NO CHROMIUM: the tests with a real browser are skipped (apt-get install chromium)"
PAGES = Path(__file__).parent / "pages"


@pytest.fixture(scope="session")
def chrome() -> Iterator[Chrome]:
    if find_chromium() is None:
        pytest.skip(NO_CHROMIUM)
    with Chrome() as browser:
        yield browser


@pytest.fixture
def show(chrome: Chrome) -> Iterator[Show]:
    """Open a page: `tab = show("shop.html")` from pages/, or `show(html, frames={"/inner": html}, headers={…})`.

    {other} in a page stands for the same server as another site.
    """
    pages: dict[str, tuple[int, Mapping[str, str], bytes]] = {}
    tabs: list[Tab] = []
    with serve(lambda path: pages.get(path.split("?")[0])) as port, contextlib.ExitStack() as stack:

        def start(
            page: str,
            frames: Mapping[str, str] | None = None,
            headers: Mapping[str, str] | None = None,
            closed: bool = False,
        ) -> Tab:
            text = (PAGES / page).read_text("utf-8") if page.endswith(".html") else page
            for path, html in {"/": text, **(frames or {})}.items():
                body = html.replace("{other}", f"http://localhost:{port}")
                pages[path] = 200, headers or {}, body.encode()
            tab = chrome.open(f"http://127.0.0.1:{port}/")
            stack.callback(tab.close)
            tabs.append(tab)
            if closed:
                tab.offer_closed_roots()
            return tab

        yield start


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = sum(NO_CHROMIUM in str(report.longrepr) for report in terminalreporter.stats.get("skipped", []))
    if skipped:
        terminalreporter.write_line(f"{skipped} tests skipped. {NO_CHROMIUM}", red=True, bold=True)
