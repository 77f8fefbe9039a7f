"""The page script in the extension's own world of a page, where closed shadow roots are open to it."""

from __future__ import annotations

import concurrent.futures
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_bridge_chrome import PAGES
from test_page_changes import FRAMES
from test_page_scan import SHADOW, number

from genericagent.errors import ToolError
from simphtml import execute_js_rich, get_html

bridged = pytest.importorskip("bridged")
pytestmark = pytest.mark.skipif(bridged.CHROMIUM is None, reason=bridged.NO_CHROMIUM)


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    paired = bridged.Bridged(tmp_path_factory.mktemp("bridge"))
    yield paired
    paired.close()


@pytest.fixture
def site() -> Iterator[Any]:
    pages = bridged.Site({})
    yield pages
    pages.close()


def test_a_form_in_a_closed_shadow_root_is_read_filled_in_and_sent(bridge: Any, site: Any) -> None:
    site.pages["/"] = SHADOW
    bridge.driver.jump(site.url + "/")
    html = get_html(bridge.driver)
    card, pay = number(html, "name=card"), number(html, "Pay")
    script = f"el({card}).value = '4711'; el({pay}).textContent = 'Paid'; return el({card}).value"
    result = execute_js_rich(script, bridge.driver)
    assert result["value"] == "4711"
    assert "value=4711" in str(result["changes"]) and "Paid" in str(result["changes"])


@pytest.mark.slow
@pytest.mark.parametrize(("path", "kind"), [("/a.pdf", "application/pdf"), ("/a.png", "image/png")])
def test_a_tab_without_a_page_says_what_it_shows(bridge: Any, site: Any, path: str, kind: str) -> None:
    driver = bridge.driver
    site.pages |= PAGES
    driver.jump(site.url + path)
    for text_only in (False, True):
        assert get_html(driver, text_only).startswith(f"[the tab shows {kind}, which is no page: ")
    assert site.url + path in get_html(driver) and "screenshot" in get_html(driver)
    assert execute_js_rich("document.contentType", driver)["value"] == kind
    assert driver.execute_js({"cmd": "screenshot"})["image"]["data"]
    assert driver.execute_js({"cmd": "screenshot", "full": True})["image"]["data"]
    assert site.url + path in [tab["url"] for tab in driver.get_all_sessions()]
    driver.jump(site.url + "/two")
    assert get_html(driver) == "<h1>Two"


def test_an_empty_tab_and_one_with_an_error_say_so_and_can_be_used(bridge: Any, site: Any) -> None:
    driver = bridge.driver
    site.pages["/"] = "<h1>Home</h1>"
    driver.execute_js({"cmd": "tabs", "action": "create"})
    assert re.fullmatch(r"\[the tab is empty \(about:blank\): .*jump.*\]", get_html(driver))
    result = execute_js_rich("document.body.append('x'); 5", driver)
    assert (result["value"], result["changes"]) == (5, {}) and "not watched" in result["note"]
    gone = execute_js_rich(f"location.href = '{site.url}/'", driver)
    assert gone["navigated"] == site.url + "/" and get_html(driver) == "<h1>Home"
    assert driver.jump("http://127.0.0.1:9/")["kind"] == "not_opened"
    with pytest.raises(ToolError, match=r"^the tab shows http://127.0.0.1:9/, .*error page.*jump[^\n]*$"):
        get_html(driver)
    driver.jump(site.url + "/")
    assert get_html(driver) == "<h1>Home"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_page_of_twenty_megabytes_holds_up_nobody_else(bridge: Any, site: Any) -> None:
    driver = bridge.driver
    site.pages |= {
        "/": "<h1>Home</h1>",
        "/big": "".join(f"<p>Line {i} {'lorem ipsum ' * 80}</p>" for i in range(20_000)),
    }
    driver.jump(site.url + "/big", 30)
    big = driver.session
    other = driver.execute_js({"cmd": "tabs", "action": "create", "url": site.url + "/"})["tab"]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        scan, calls = pool.submit(get_html, driver, session_id=big), 0
        while not scan.done():
            assert driver.execute_js("document.title = 'x'", session_id=other)["value"] == "x"
            calls += 1
        html = scan.result()
    assert html.startswith("Line 0 ") and len(html) <= 35_000 and "start=" in html and calls > 1
    assert get_html(driver, start=10_000_000, maxchars=3000, session_id=big).count("Line ") >= 2
    assert execute_js_rich("document.body.append('added'); 1", driver, session_id=big)["changes"]["appeared"] == [
        "added"
    ]


@pytest.mark.slow
def test_a_frame_of_another_extension_stops_only_the_debugger(tmp_path: Path, site: Any) -> None:
    """As password managers put them into pages: from then on the browser lets no debugger in."""
    other = tmp_path / "other"
    other.mkdir()
    script = "document.querySelector('button').onclick = () => { const f = document.createElement('iframe'); f.src = chrome.runtime.getURL('f.html'); document.body.append(f); }"
    (other / "f.html").write_text("<h1>Password?</h1>")
    (other / "c.js").write_text(script)
    (other / "manifest.json").write_text(json.dumps({
        "manifest_version": 3, "name": "other", "version": "1", "content_scripts": [{"matches": ["http://*/shop"], "js": ["c.js"]}],
        "web_accessible_resources": [{"resources": ["f.html"], "matches": ["<all_urls>"]}],
    }))  # fmt: skip
    site.pages |= {"/shop": "<title>shop</title><button>Log in</button><p>Words</p>", "/two": "<h1>Two</h1>"}
    paired = bridged.Bridged(tmp_path, beside=other)
    driver = paired.driver
    try:
        driver.jump(site.url + "/shop")
        assert driver.execute_js("document.querySelector('button').click(); document.title")["via"] == "debugger"
        while "chrome-extension" not in (html := get_html(driver)):
            pass  # it is being loaded
        assert "Words" in html and "[this frame could not be read]" in html
        for code in ("globalThis.n = (globalThis.n ?? 0) + 1", "globalThis.n += 1"):
            result = execute_js_rich(code, driver)
            assert result["via"] == "page" and "different extension" in result["note"]
        assert result["value"] == 2  # none was run twice
        with pytest.raises(ToolError, match="does not let us debug"):
            driver.execute_js({"cmd": "screenshot"})
        driver.jump(site.url + "/two")
        assert get_html(driver) == "<h1>Two"
        assert driver.execute_js("1")["via"] == "debugger"
    finally:
        paired.close()


@pytest.mark.parametrize("source", ["/in", "{other}/in"])
def test_a_button_in_a_frame_is_pushed(bridge: Any, site: Any, source: str) -> None:
    site.pages |= {"/": f"<button>Top</button><iframe src='{source}'></iframe>", **FRAMES}
    bridge.driver.jump(site.url + "/")
    while "Push" not in (html := get_html(bridge.driver)):
        pass  # the frame is still being loaded
    result = execute_js_rich(f"el({number(html, 'Push')}).click()", bridge.driver)
    assert "Pushed" in str(result["changes"]["changed"])


def test_a_short_toast_is_told_through_the_bridge(bridge: Any, site: Any) -> None:
    site.pages["/"] = (
        "<button onclick=\"const t = document.createElement('p'); t.textContent = 'Saved'; document.body.append(t); setTimeout(() => t.remove(), 150)\">Save</button>"
    )
    bridge.driver.jump(site.url + "/")
    save = number(get_html(bridge.driver), "Save")
    assert execute_js_rich(f"el({save}).click()", bridge.driver)["changes"] == {"briefly": ["Saved"]}


def test_a_click_that_navigates_says_where(bridge: Any, site: Any) -> None:
    site.pages |= {"/": "<a href='/next'>Next</a>", "/next": "<h1>Second page</h1>"}
    bridge.driver.jump(site.url + "/")
    result = execute_js_rich(f"el({number(get_html(bridge.driver), 'Next')}).click()", bridge.driver)
    assert result["navigated"].endswith("/next")
    assert get_html(bridge.driver) == "<h1>Second page"


@pytest.mark.slow
def test_a_click_that_fills_the_page_anew_is_answered(bridge: Any, site: Any) -> None:
    fill = "for (let i = 0; i < 20000; i++) { const p = document.createElement('p'); p.textContent = `${i} ` + 'word '.repeat(40); document.body.append(p) }"
    site.pages["/"] = f'<button onclick="{fill}">Fill</button>'
    bridge.driver.jump(site.url + "/")
    fill_button = number(get_html(bridge.driver), "Fill")
    result = execute_js_rich(f"el({fill_button}).click()", bridge.driver)
    assert "error" not in result and result["changes"]["more"] > 10_000
