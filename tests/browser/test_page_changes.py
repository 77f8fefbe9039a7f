"""el(n), and what execute_js_rich tells about what a script changed."""

from __future__ import annotations

import re
import time

import pytest
from chrome import Show, Tab
from test_page_scan import SHADOW, number

from simphtml import execute_js_rich, get_html


def changes(tab: Tab, script: str) -> dict[str, list[object]]:
    found: dict[str, list[object]] = execute_js_rich(script, tab)["changes"]
    return found


def test_a_click_on_a_numbered_button_changes_the_page_and_a_short_toast_is_told(show: Show) -> None:
    tab = show("shop.html")
    buy = number(get_html(tab), "Add to cart")
    told = changes(tab, f"el({buy}).click()")
    assert told == {
        "changed": [{"from": "Cart: 0 items", "to": "Cart: 1 items"}],
        "briefly": ["Saved: it is in your cart now"],
    }


@pytest.mark.parametrize("length", [10, 5_000])
def test_a_toast_is_told_whatever_its_length(show: Show, length: int) -> None:
    tab = show("<div id=d></div>")
    script = f"d.textContent = 'x'.repeat({length}); setTimeout(() => d.textContent = '', 150)"
    assert changes(tab, script) == {"briefly": ["x" * length]}


def test_a_toast_that_is_only_made_visible_for_a_moment_is_told(show: Show) -> None:
    tab = show("<style>#t{display:none} #t.on{display:block}</style><p>Page</p><div id=t>Saved</div>")
    assert changes(tab, "t.classList.add('on'); setTimeout(() => t.classList.remove('on'), 150)") == {
        "briefly": ["Saved"]
    }


def test_what_happens_a_little_later_is_waited_for(show: Show) -> None:
    tab = show("<p id=p>Old</p>")
    script = (
        "let n = 0; const t = setInterval(() => { p.textContent = 'step ' + ++n; if (n == 4) clearInterval(t) }, 100)"
    )
    assert changes(tab, script)["changed"] == [{"from": "Old", "to": "step 4"}]


def test_a_page_that_never_rests_does_not_hold_us_up(show: Show) -> None:
    tab = show("<p id=p>0</p><p id=q>Old</p><script>let n = 0; setInterval(() => p.textContent = ++n, 20)</script>")
    began = time.monotonic()
    told = changes(tab, "q.textContent = 'New'")
    assert {"from": "Old", "to": "New"} in told["changed"]
    assert time.monotonic() - began < 10


def test_nothing_is_told_when_nothing_changed(show: Show) -> None:
    assert changes(show("shop.html"), "return document.title") == {}


def test_what_appears_comes_with_numbers_and_what_vanishes_is_named(show: Show) -> None:
    tab = show("<p id=a>Going</p><p>Staying</p>")
    told = changes(
        tab, "a.remove(); document.body.insertAdjacentHTML('beforeend', '<p>Sure? <button>Yes</button></p>')"
    )
    assert told == {"appeared": ["Sure? <button 1>Yes"], "vanished": ["Going"]}
    assert execute_js_rich("return el(1).textContent", tab)["value"] == "Yes"


def test_the_state_of_fields_belongs_to_what_changes(show: Show) -> None:
    tab = show("form.html")
    told = changes(tab, "document.querySelector('[name=news]').checked = false")
    assert "checked" in str(told["changed"][0]) and len(told["changed"]) == 1


def test_many_changes_are_counted(show: Show) -> None:
    tab = show("<ul id=u></ul>")
    told = changes(tab, "for (let i = 0; i < 500; i++) u.insertAdjacentHTML('beforeend', `<li>Item ${i}`)")
    assert len(told["appeared"]) + told["more"] == 500  # type: ignore[operator]


def test_without_the_monitor_only_the_result_comes(show: Show) -> None:
    result = execute_js_rich("document.body.textContent = 'x'; return 1", show("shop.html"), no_monitor=True)
    assert result["value"] == 1 and "changes" not in result


def test_el_reaches_into_shadow_roots_also_closed_ones(show: Show) -> None:
    tab = show(SHADOW, closed=True)
    html = get_html(tab)
    for label, name in (("Book", "seat"), ("Pay", "card")):
        assert execute_js_rich(f"return el({number(html, label)}).textContent", tab)["value"] == label
        field = number(html, f"name={name}")
        told = execute_js_rich(f"el({field}).value = '7A'; return el({field}).name", tab)
        assert told["value"] == name and "value=7A" in str(told["changes"]["changed"])


def test_changes_in_a_closed_shadow_root_are_told(show: Show) -> None:
    tab = show(SHADOW, closed=True)
    pay = number(get_html(tab), "Pay")
    told = changes(
        tab,
        f"const b = el({pay}), t = document.createElement('i'); t.textContent = 'Paid'; b.after(t); setTimeout(() => t.remove(), 150)",
    )
    assert told == {"briefly": ["Paid"]}


FRAMES = {"/in": "<button onclick=\"this.textContent = 'Pushed'\">Push</button>"}


@pytest.mark.slow
@pytest.mark.parametrize("source", ["/in", "{other}/in"])
def test_el_reaches_into_frames_whatever_their_origin(show: Show, source: str) -> None:
    tab = show(f"<button>Top</button><iframe src='{source}'></iframe>", FRAMES)
    while "Push" not in (html := get_html(tab)):
        pass  # a frame in a process of its own is attached to a little later
    told = execute_js_rich(f"el({number(html, 'Push')}).click(); return location.pathname", tab)
    assert told["value"] == ("/in" if "other" in source else "/")
    assert "Pushed" in str(told["changes"]["changed"])
    assert execute_js_rich(f"return el({number(html, 'Top')}).textContent", tab)["value"] == "Top"


def test_el_leaves_no_trace_on_the_page(show: Show) -> None:
    tab = show("<button id=b>Go</button>")
    get_html(tab)
    before = tab.execute_js("return document.documentElement.outerHTML")["value"]
    assert execute_js_rich("return [el(1) === b, document.documentElement.outerHTML]", tab)["value"] == [True, before]


@pytest.mark.parametrize(
    ("script", "word"), [("el(99)", "there is no el(99)"), ("el(1).remove(); el(1)", "no longer on the page")]
)
def test_an_el_that_is_not_there_is_a_clear_error(show: Show, script: str, word: str) -> None:
    tab = show("<button>Go</button>")
    get_html(tab)
    result = execute_js_rich(script, tab)
    assert word in result["error"] and "web_scan" in result["error"]


def test_a_page_without_el_in_the_script_gets_only_the_script(show: Show) -> None:
    assert execute_js_rich("return typeof el", show("<p>x</p>"), no_monitor=True)["value"] == "function"
    assert execute_js_rich("return typeof window.elephant", show("<p>x</p>"), no_monitor=True)["value"] == "undefined"


@pytest.mark.parametrize("policy", ["script-src 'none'", "require-trusted-types-for 'script'; trusted-types none"])
def test_changes_are_told_under_a_strict_policy_too(show: Show, policy: str) -> None:
    tab = show("<p>Old</p><button>Go</button>", headers={"Content-Security-Policy": policy})
    button = number(get_html(tab), "Go")
    assert changes(tab, f"el({button}).textContent = 'Gone'; document.querySelector('p').textContent = 'New'") == {
        "changed": [{"from": "Old", "to": "New"}, {"from": "Go", "to": f"<button {button}>Gone"}]
    }


def test_a_field_that_a_framework_controls_can_be_filled_in(show: Show) -> None:
    page = """<input id=i><p id=o></p><script>
    const proto = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value'); let shown = '';
    Object.defineProperty(i, 'value', {get() { return proto.get.call(this) }, set(v) { shown = v; proto.set.call(this, v) }});
    i.addEventListener('input', () => { const now = proto.get.call(i); if (now !== shown) { shown = now; o.textContent = 'State: ' + now } })
    </script>"""
    tab = show(page)
    field = number(get_html(tab), ">")
    script = f"""const e = el({field}); Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(e, 'Ann');
    e.dispatchEvent(new Event('input', {{bubbles: true}}))"""
    told = changes(tab, script)
    assert "State: Ann" in str(told) and re.search(r"value=Ann", str(told))
