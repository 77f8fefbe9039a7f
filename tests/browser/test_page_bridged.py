"""The page script in the extension's own world of a page, where closed shadow roots are open to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from test_page_changes import FRAMES
from test_page_scan import SHADOW, number

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
