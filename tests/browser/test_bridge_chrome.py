"""The bridge with a real Chromium: values, policies, dialogs, navigation, tabs, frames, several agents, restarts."""

from __future__ import annotations

import base64
import concurrent.futures
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bridged import CHROMIUM, NO_CHROMIUM, Bridged, Chromium, Site, serving, until

from genericagent import paths
from genericagent.browser import server, wire
from genericagent.cli.browser import run_browser
from genericagent.errors import ToolError
from TMWebDriver import TMWebDriver

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)

PDF = (
    "%PDF-1.1\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj "
    "3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]>>endobj\ntrailer<</Root 1 0 R>>"
)
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
).decode("latin-1")


def slow(handler: Any) -> str:
    time.sleep(0.3)
    return "<title>slow</title>"


PAGES: dict[str, Any] = {
    "/": '<title>home</title><h1>Home</h1><a id=l href="/two">two</a> <a id=b href="/hop" target=_blank>new</a>',
    "/two": "<title>two</title><h1>Two</h1>",
    "/hop": ("", {"Status": "302", "Location": "/two?final"}),
    "/slow": slow,
    "/cookie": ("<title>c</title>", {"Set-Cookie": "sid=s3cret; HttpOnly"}),
    "/none": ("<title>none</title><h1>No scripts</h1>", {"Content-Security-Policy": "script-src 'none'"}),
    "/strict": ("<title>strict</title>", {"Content-Security-Policy": "default-src 'none'; script-src 'self'"}),
    "/types": (
        "<title>types</title>",
        {"Content-Security-Policy": "require-trusted-types-for 'script'; trusted-types 'none'; script-src 'self'"},
    ),
    "/sandbox": ("<title>sandbox</title>", {"Content-Security-Policy": "sandbox allow-scripts"}),
    "/dialogs": """<title>dialogs</title><button id=a onclick="alert('hi')">a</button>
        <button id=c onclick="window.r = confirm('sure?')">c</button>
        <button id=p onclick="window.r = prompt('name?', 'def')">p</button>""",
    "/unload": """<title>unload</title><input id=i><a id=l href="/two">two</a>
        <script>addEventListener('beforeunload', e => e.preventDefault())</script>""",
    "/onload": "<title>onload</title><script>alert('load!')</script><p>after</p>",
    "/form": '<title>form</title><form action="/two"><input name=q value=1><button id=s>go</button></form>',
    "/file": (
        "x" * 1000,
        {"Content-Type": "application/octet-stream", "Content-Disposition": "attachment; filename=f.bin"},
    ),
    "/nothing": ("", {"Status": "204"}),
    "/frames": '<title>frames</title><iframe src="/two"></iframe><iframe src="{other}/none"></iframe><iframe srcdoc="<p>in"></iframe>',
    "/big": "<title>big</title>" + f"<p>{'x' * 4990}</p>" * 4000,
    "/a.pdf": (PDF, {"Content-Type": "application/pdf"}),
    "/a.png": (PNG, {"Content-Type": "image/png"}),
    "/idle": (
        """<title>idle</title><div>page</div><script src="/idle.js"></script>""",
        {"Content-Security-Policy": "default-src 'self'; script-src 'self'; connect-src 'self'"},
    ),
    "/idle.js": (
        """const before = document.documentElement.outerHTML;
        document.addEventListener('securitypolicyviolation', e => fetch('/csp?' + e.effectiveDirective));
        new MutationObserver(() => fetch('/mutated')).observe(document, {subtree: true, childList: true, attributes: true});
        try { eval('1'); fetch('/eval-ran'); } catch { fetch('/eval-blocked'); }
        const native = [alert, confirm, prompt, fetch, window.open].every(f => /native code/.test(f.toString()));
        setTimeout(() => fetch('/told?' + [native, before === document.documentElement.outerHTML,
          Object.getOwnPropertyNames(window).filter(n => /^ga[A-Z]|generic|tmwd/.test(n)).length]), 400);""",
        {"Content-Type": "text/javascript"},
    ),
}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving(PAGES) as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridged]:
    bridged = Bridged(tmp_path_factory.mktemp("bridged"))
    try:
        bridged.driver.execute_js({"cmd": "tabs", "action": "create"})
        yield bridged
    finally:
        bridged.close()


@pytest.fixture
def driver(shared: Bridged, site: Site) -> Iterator[TMWebDriver]:
    """A driver with a tab of its own."""
    with TMWebDriver(home=shared.home) as found:
        found.execute_js({"cmd": "tabs", "action": "create"})
        yield found
        for tab in found.get_all_sessions()[1:]:
            found.execute_js({"cmd": "tabs", "action": "close", "tab": tab["id"], "dialogs": "accept"})


@pytest.fixture
def bridged(tmp_path: Path) -> Iterator[Bridged]:
    """A browser for this test alone."""
    found = Bridged(tmp_path)
    try:
        yield found
    finally:
        found.close()


def value(driver: TMWebDriver, code: str, **how: Any) -> Any:
    result = driver.execute_js(code, **how)
    assert "error" not in result, result
    return result["value"]


# values


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "kind", "wanted"),
    [
        ("false", "boolean", False), ("true", "boolean", True), ("0", "number", 0), ("1.5", "number", 1.5), ("-0", "number", "-0"),
        ("NaN", "number", "NaN"), ("-Infinity", "number", "-Infinity"), ("''", "string", ""), ("'1'", "string", "1"), ("'ä€😀'", "string", "ä€😀"),
        ("'\\ud800x'", "string", "\ufffdx"), ("null", "null", None), ("undefined", "undefined", None), ("void 0", "undefined", None),
        ("10n", "bigint", "10n"), ("Symbol('q')", "symbol", "Symbol(q)"), ("[]", "array", []), ("[1,,undefined,null]", "array", [1, None, None, None]),
        ("({})", "object", {}), ("{}", "object", {}), ("{a: 1}", "object", {"a": 1}), ("({a: {b: [false, 0, '', null]}, u: undefined})", "object", {"a": {"b": [False, 0, "", None]}}),
        ("new Map([['k', {v: 1}]])", "map", [["k", {"v": 1}]]), ("new Set([1, 'a'])", "set", [1, "a"]), ("new Date(0)", "date", "1970-01-01T00:00:00.000Z"),
        ("new Date(NaN)", "date", "Invalid Date"), ("/a+/gi", "regexp", "/a+/gi"), ("new Uint8Array([1, 2])", "object", [1, 2]),
        ("document.createElement('hr')", "node", "<hr>"), ("document.createTextNode('t')", "node", "t"), ("document", "node", "[document about:blank]"),
        ("window", "window", "[window about:blank]"), ("const o = {n: 1}; o.o = o; o", "object", {"n": 1, "o": "[circular]"}),
        ("const a = []; a.push([a]); a", "array", [["[circular]"]]), ("({get x() { throw 1 }})", "object", {"x": "[not readable: 1]"}),
        ("Object.create(null)", "object", {}), ("JSON.parse('{\"__proto__\": 5}')", "object", {"__proto__": 5}), ("Promise.resolve(3)", "number", 3),
        ("new Proxy({a: 1}, {})", "object", {"a": 1}), ("new URL('http://x.test/')", "object", "http://x.test/"), ("[document.body]", "array", ["<body></body>"]),
        ("document.querySelectorAll('body')", "object", ["<body></body>"]), ("new (class A { b = 1 })", "object", {"b": 1}),
    ],
)  # fmt: skip
def test_a_value_keeps_its_kind(driver: TMWebDriver, code: str, kind: str, wanted: Any) -> None:
    result = driver.execute_js(code)
    assert (result.get("type"), result.get("value")) == (kind, wanted), result
    returned = driver.execute_js(f"return ({code})" if ";" not in code else code.replace("; o", "; return o"))
    assert returned.get("value") == wanted or code == "{}", returned


@pytest.mark.slow
def test_large_and_deep_values_arrive(driver: TMWebDriver) -> None:
    assert value(driver, "'x'.repeat(5e6)") == "x" * 5_000_000
    assert value(driver, "Array.from({length: 2e5}, (_, i) => i)") == list(range(200_000))
    deep = value(driver, "let d = 1; for (let i = 0; i < 1000; i++) d = [d]; d")
    assert "[deeper]" in json.dumps(deep)
    with pytest.raises(ToolError, match="return less"):
        driver.execute_js("'x'.repeat(6e7)")
    assert value(driver, "1 + 1") == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("1 + 1", 2), ("return 1 + 1", 2), ("var x = 1; x + 1", 2), ("let x = 1; return x + 1", 2), ("const x = 1; x", 1), ("const x = 1; x", 1),
        ("await Promise.resolve(5)", 5), ("const r = await new Promise(d => setTimeout(d, 20, 6)); r", 6), ("return await Promise.resolve(7)", 7),
        ("if (true) { return 8 }", 8), ("if (1) 9; else 10", 9), ("function f() { return 11 } f()", 11), ("(() => 12)()", 12), ("(async () => 13)()", 13),
        ("for (const i of [1, 14]) i", 14), ("// a comment\n15 // and one", 15), ("return 16 // done", 16), ("`a${1}`", "a1"), ("[1,2].map(x => { return x * 2 })", [2, 4]),
        ("{ let y = 17; y }", 17), ("try { throw 1 } catch { 18 }", 18), ("'return'", "return"), ("", None), ("return", None), ("19;", 19), ("{a: 20}.a", 20),
        ("async function g() { return 21 }\nawait g()", 21), ("'use strict'; 22", 22), ("import('data:text/javascript,export default 23').then(m => m.default)", 23),
    ],
)  # fmt: skip
def test_code_works_as_in_a_console(driver: TMWebDriver, code: str, wanted: Any) -> None:
    if code == "{a: 20}.a":
        assert "SyntaxError" in driver.execute_js(code)["error"]
    else:
        assert value(driver, code) == wanted


def test_what_code_declares_does_not_get_into_the_pages_way(driver: TMWebDriver, site: Site) -> None:
    site.pages["/names"] = (
        "<script>var items = 'page'; const $ = () => items; setTimeout(() => document.title = $(), 300)</script>"
    )
    driver.jump(site.url + "/names")
    assert value(driver, "const items = 5; let $ = 6; items + $") == 11
    until(lambda: value(driver, "document.title") == "page")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("nope.x", "ReferenceError: nope is not defined"), ("null.x", "TypeError"), ("throw new Error('boo')", "Error: boo"), ("throw 5", "5"), ("a b", "SyntaxError"),
        ("Promise.reject(new TypeError('no'))", "TypeError: no"), ("return Promise.reject('why')", "why"), ("eval('return 1')", "SyntaxError: Illegal return"), ("throw {a: 1}", "Object"),
        ("throw null", "null"), ("await Promise.reject()", "undefined"),
    ],
)  # fmt: skip
def test_an_error_of_the_code_is_told(driver: TMWebDriver, code: str, error: str) -> None:
    result = driver.execute_js(code)
    assert (result["kind"], "value" in result) == ("exception", False)
    assert error in result["error"] and "\n" not in result["error"]


def test_code_that_throws_late_is_not_run_twice(driver: TMWebDriver) -> None:
    driver.execute_js("globalThis.n = (globalThis.n ?? 0) + 1; eval('return 1')")
    driver.execute_js("globalThis.n += 1; await null; new Function('return return')")
    assert value(driver, "n") == 2


# limits


@pytest.mark.slow
def test_a_call_that_never_ends_ends_alone(driver: TMWebDriver) -> None:  # C097
    def run(code: str) -> dict[str, Any]:
        return driver.execute_js(code, 1.5, driver.session)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        never = pool.submit(run, "await new Promise(() => {})")
        assert [f.result()["value"] for f in [pool.submit(run, str(n)) for n in range(5)]] == list(range(5))
        assert never.result()["kind"] == "timeout"
    assert value(driver, "1") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "while (true) {}",
        "await null; while (true) {}",
        "setTimeout(() => { while (true) {} }, 50); await new Promise(() => {})",
    ],
)
def test_an_endless_loop_is_ended_and_the_tab_lives_on(driver: TMWebDriver, site: Site, code: str) -> None:
    driver.jump(site.url + "/")
    begin = time.monotonic()
    assert driver.execute_js(code, 1)["kind"] == "timeout"
    assert value(driver, "document.title") == "home" and time.monotonic() - begin < 20


@pytest.mark.slow
def test_a_page_that_is_busy_of_itself_is_ended(driver: TMWebDriver, site: Site) -> None:
    driver.jump(site.url + "/")
    driver.execute_js("kept = 1; setTimeout(() => { const end = Date.now() + 5000; while (Date.now() < end); }, 0); 1")
    time.sleep(0.2)
    result = driver.execute_js("await new Promise((done) => setTimeout(done, 20000))", 1)
    assert result["kind"] == "timeout" and "together with its page" not in result["error"]
    until(lambda: driver.execute_js("window.kept", 2).get("value") == 1)


# policies


@pytest.mark.parametrize("page", ["/none", "/strict", "/types", "/sandbox"])
def test_no_policy_of_a_page_is_in_the_way(driver: TMWebDriver, site: Site, page: str) -> None:  # C092
    driver.jump(site.url + page)
    result = driver.execute_js("1 + 1")
    assert (result["value"], result["via"]) == (2, "debugger")
    assert value(driver, "return document.title") == page[1:]
    assert value(driver, "({t: document.querySelector('title').outerHTML})") == {"t": f"<title>{page[1:]}</title>"}


@pytest.mark.slow
def test_idle_pages_are_left_alone(bridged: Bridged, site: Site) -> None:
    bridged.chromium.worker(f"chrome.tabs.create({{url: '{site.url}/idle'}}).then(() => 1)")
    told = until(lambda: [p for p in site.seen if p.startswith("/told")])
    assert told[-1] == "/told?true,true,0"
    assert "/eval-blocked" in site.seen and "/csp?script-src" in site.seen and "/eval-ran" not in site.seen
    assert "/mutated" not in site.seen
    assert (
        bridged.chromium.worker(
            "chrome.debugger.getTargets().then(all => all.filter(t => t.attached && t.type === 'page').length)"
        )
        == 0
    )
    driver = bridged.driver
    driver.set_session("/idle")
    assert value(driver, "confirm.toString()") == "function confirm() { [native code] }"
    assert value(driver, "Object.getOwnPropertyNames(window).filter(n => /^ga[A-Z]|generic|tmwd/.test(n)).length") == 0


# dialogs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("button", "policy", "answer", "accepted"),
    [
        ("a", None, None, True), ("c", None, False, False), ("p", None, None, False), ("c", {"confirm": True}, True, True), ("p", {"prompt": "Ann"}, "Ann", True),
        ("p", {"prompt": True}, "def", True), ("c", "accept", True, True), ("c", {"prompt": True}, False, False), ("p", {"prompt": ""}, "", True), ("c", {"confirm": False}, False, False),
        ("a", "dismiss", None, True),
    ],
)  # fmt: skip
def test_a_dialog_is_told_and_nothing_accepted_silently(
    driver: TMWebDriver, site: Site, button: str, policy: Any, answer: Any, accepted: bool
) -> None:  # C091
    driver.jump(site.url + "/dialogs")
    result = driver.execute_js(f"{button}.click(); window.r ?? null", dialogs=policy)
    assert result["value"] == answer
    [dialog] = result["dialogs"]
    kinds = {"a": ("alert", "hi"), "c": ("confirm", "sure?"), "p": ("prompt", "name?")}
    assert (dialog["type"], dialog["message"], dialog["accepted"]) == (*kinds[button], accepted)


def test_dialogs_of_every_time_are_answered(driver: TMWebDriver, site: Site) -> None:  # C091
    driver.jump(site.url + "/dialogs")
    many = driver.execute_js("for (let i = 0; i < 4; i++) alert(i); confirm('x')")
    assert [d["message"] for d in many["dialogs"]] == ["0", "1", "2", "3", "x"]
    later = driver.execute_js(
        "setTimeout(() => window.r = confirm('later'), 100); await new Promise(d => setTimeout(d, 300)); r"
    )
    assert (later["value"], later["dialogs"][0]["message"]) == (False, "later")
    driver.execute_js("setTimeout(() => window.r = confirm('between'), 50); 1")
    assert until(lambda: driver.execute_js("r").get("dialogs"))[0]["message"] == "between"
    assert [d["message"] for d in driver.jump(site.url + "/onload")["dialogs"]] == ["load!"]
    assert value(driver, "document.body.innerText.trim()") == "after"
    opened = driver.execute_js(f"window.open('{site.url}/onload'); 1")
    assert opened["dialogs"][0]["message"] == "load!" and opened["new_tabs"][0]["title"] == "onload"


def test_a_page_that_asks_before_leaving_is_not_left_silently(driver: TMWebDriver, site: Site) -> None:  # C091
    driver.jump(site.url + "/unload")
    driver.execute_js("i.focus(); document.execCommand('insertText', false, 'x')")
    for result in (
        driver.execute_js("document.querySelector('#l').click()"),
        driver.jump(site.url + "/two"),
        driver.execute_js({"cmd": "tabs", "action": "close"}),
        driver.execute_js("location.reload()"),
    ):
        assert [d["type"] for d in result["dialogs"]] == ["beforeunload"] and "navigated" not in result
    assert driver.jump(site.url + "/two")["kind"] == "stayed"
    assert value(driver, "location.pathname") == "/unload"
    assert driver.jump(site.url + "/two", dialogs={"beforeunload": True})["navigated"] == site.url + "/two"
    assert value(driver, "location.pathname") == "/two"


# navigation, new tabs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "where"),
    [
        ("document.querySelector('#l').click()", "/two"), ("location.href = '/two'; 5", "/two"), ("location = '/slow'", "/slow"), ("location.assign('/hop')", "/two?final"),
        ("location.reload()", "/"), ("location.hash = 'x'", "/#x"), ("history.pushState({}, '', '/pushed'); 1", "/pushed"), ("history.back()", "/two"),
        ("setTimeout(() => location.href = '/two', 50); await new Promise(() => {})", "/two"), ("await fetch('/two'); location.replace('/slow'); await new Promise(() => {})", "/slow"),
        ("document.body.innerHTML = '<form action=/two><button id=s>'; s.click()", "/two?"), ("document.body.innerHTML = '<form action=/two>'; document.forms[0].submit()", "/two?"),
    ],
)  # fmt: skip
def test_a_navigation_is_told_at_once_with_its_url(driver: TMWebDriver, site: Site, code: str, where: str) -> None:
    driver.jump(site.url + "/two")
    driver.jump(site.url + "/")
    begin = time.monotonic()
    result = driver.execute_js(code, 30)
    assert (result.get("navigated"), result["url"]) == (site.url + where,) * 2, result
    assert time.monotonic() - begin < 15
    assert value(driver, "location.pathname + location.search + location.hash") == where.removesuffix("?")


def test_what_does_not_navigate_after_all_is_not_said_to(driver: TMWebDriver, site: Site) -> None:
    driver.jump(site.url + "/")
    assert "navigated" not in driver.execute_js("location.href = '/nothing'; 1")
    download = driver.execute_js("location.href = '/file'; 1")
    assert download["downloads"][0]["file"] == "f.bin" and "navigated" not in download  # C097
    assert value(driver, "document.title") == "home"
    assert "navigated" not in driver.execute_js("document.querySelector('h1').click()")


def test_a_new_tab_is_told_with_its_final_url(driver: TMWebDriver, site: Site) -> None:
    driver.jump(site.url + "/")
    for code in (
        "b.click()",
        "window.open('/hop'); 1",
        "window.open('/hop', '_blank', 'noopener,width=300'); 1",
        "b.dispatchEvent(new MouseEvent('click', {ctrlKey: true, bubbles: true}))",
    ):
        result = driver.execute_js(code)
        [tab] = result["new_tabs"]
        assert (tab["url"], tab["title"]) == (site.url + "/two?final", "two"), code
        assert "blocked_popups" not in result and "navigated" not in result
        assert value(driver, "document.title", session_id=tab["id"]) == "two"


def test_a_blocked_pop_up_is_said_to_be_blocked(driver: TMWebDriver, site: Site) -> None:
    driver.jump(site.url + "/")
    result = driver.execute_js("window.open('/two'); String(window.open('/none'))")
    assert (result["value"], result["blocked_popups"]) == ("null", [site.url + "/none"])
    assert [t["url"] for t in result["new_tabs"]] == [site.url + "/two"]


def test_a_page_that_cannot_be_opened_is_an_error(driver: TMWebDriver, site: Site) -> None:
    driver.jump(site.url + "/")
    result = driver.jump("http://127.0.0.1:9/")
    assert result["kind"] == "not_opened" and "net::ERR" in result["error"]
    for refused in (
        "javascript:alert(1)",
        "chrome://settings",
        "data:text/html,x",
        "about:config",
        "chrome-extension://x/y",
    ):
        with pytest.raises(ToolError, match="not opened"):
            driver.jump(refused)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "kind"), [("/a.pdf", "application/pdf"), ("/a.png", "image/png"), ("/big", "text/html")]
)
def test_unusual_pages_work(driver: TMWebDriver, site: Site, page: str, kind: str) -> None:
    driver.jump(site.url + page, 30)
    assert value(driver, "document.contentType") == kind
    if page == "/big":
        assert len(value(driver, "document.body.textContent", timeout=30)) == 4990 * 4000


# tabs


def test_the_list_of_tabs_is_the_browsers(driver: TMWebDriver, site: Site, shared: Bridged) -> None:  # C082
    driver.jump(site.url + "/two?listed")
    mine = next(t for t in driver.get_all_sessions() if t["url"].endswith("?listed"))
    assert (mine["id"], mine["title"], mine["active"]) == (driver.session, "two", True)
    shared.chromium.worker("chrome.tabs.create({url: 'chrome://version'}).then(() => 1)")
    assert not any("chrome:" in t["url"] for t in driver.get_all_sessions())
    created = driver.execute_js({"cmd": "tabs", "action": "create", "url": site.url + "/none", "active": False})
    assert driver.session == created["tab"] and driver.set_session("?listed") == mine["id"]
    assert driver.set_session("nowhere.test") is None and driver.session == mine["id"]
    shared.chromium.worker(f"chrome.tabs.remove({mine['id']}).then(() => 1)")
    assert mine["id"] not in [t["id"] for t in driver.get_all_sessions()]
    begin = time.monotonic()
    with pytest.raises(ToolError, match=f"tab {mine['id']} is closed.*open tabs: .*http://127"):
        driver.execute_js("1")
    assert time.monotonic() - begin < 10
    assert value(driver, "1") == 1 and driver.session != mine["id"]
    for nonsense in ("0", "x", "999999999999", "1:2", "../x", "-1"):
        with pytest.raises(ToolError):
            driver.execute_js("1", session_id=nonsense)


def test_a_tab_that_closes_itself_ends_the_call(driver: TMWebDriver, site: Site) -> None:
    driver.jump(site.url + "/")
    popup = driver.execute_js("window.open('/two'); 1")["new_tabs"][0]["id"]
    begin = time.monotonic()
    assert driver.execute_js("window.close(); await new Promise(() => {})", 30, popup)["closed"] is True
    assert time.monotonic() - begin < 15


def test_without_a_page_one_is_made(bridged: Bridged) -> None:
    bridged.chromium.worker(
        "chrome.tabs.create({url: 'chrome://version'}).then(() => chrome.tabs.query({url: 'about:blank'})).then(t => chrome.tabs.remove(t.map(x => x.id))).then(() => 1)"
    )
    assert bridged.driver.get_all_sessions() == []
    assert value(bridged.driver, "1 + 1") == 2
    assert len(bridged.driver.get_all_sessions()) == 1


@pytest.mark.slow
def test_two_agents_do_not_get_into_each_others_tabs(driver: TMWebDriver, site: Site, shared: Bridged) -> None:  # C083
    driver.jump(site.url + "/two?a")
    program = (
        "import sys, json; from pathlib import Path; from TMWebDriver import TMWebDriver\n"
        "with TMWebDriver(home=Path(sys.argv[1])) as d:\n"
        "    d.execute_js({'cmd': 'tabs', 'action': 'create', 'url': sys.argv[2]})\n"
        "    print(json.dumps([d.execute_js('location.href')['value'] for _ in range(50)]))"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(shared.home), site.url + "/two?b"],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    mine = [value(driver, "location.href") for _ in range(50)]
    assert set(mine) == {site.url + "/two?a"}
    assert set(json.loads(other.communicate(timeout=60)[0])) == {site.url + "/two?b"}


# commands


def test_commands(driver: TMWebDriver, site: Site) -> None:
    driver.jump(site.url + "/cookie")
    assert [c["value"] for c in value(driver, '{"cmd": "cookies"}') if c["name"] == "sid"] == ["s3cret"]
    assert "layoutViewport" in value(
        driver, json.dumps({"cmd": "cdp", "method": "Page.getLayoutMetrics", "params": {}})
    )
    image = driver.execute_js({"cmd": "screenshot", "full": True})["image"]
    assert image["media_type"] == "image/png" and base64.b64decode(image["data"]).startswith(b"\x89PNG")
    jpeg = driver.execute_js(
        {"cmd": "screenshot", "format": "jpeg", "clip": {"x": 0, "y": 0, "width": 10, "height": 10}}
    )["image"]
    assert base64.b64decode(jpeg["data"]).startswith(b"\xff\xd8")
    assert driver.execute_js({"cmd": "jump", "url": site.url + "/dialogs"})["url"] == site.url + "/dialogs"
    asked = driver.execute_js({"cmd": "js", "code": "confirm('ok?')", "dialogs": {"confirm": True}})
    assert asked["value"] is True and asked["dialogs"][0]["accepted"]
    listed = value(driver, {"cmd": "tabs"})
    assert driver.session in [t["id"] for t in listed]
    switched = driver.execute_js({"cmd": "tabs", "action": "switch", "tab": listed[0]["id"]})
    assert switched["tab"] == driver.session == listed[0]["id"]
    for wrong in (
        {"cmd": "nope"}, {"cmd": "tabs", "action": "nope"}, {"cmd": "cdp"}, {"cmd": "cdp", "method": "No.such"}, {"cmd": "js", "kode": "1"}, {"cmd": "batch"},
        {"cmd": "batch", "steps": [1]}, {"cmd": "js", "code": "1", "timeout": -1}, {"cmd": "screenshot", "format": "bmp"}, {"cmd": "tabs", "action": "create", "url": "chrome://x"},
    ):  # fmt: skip
        with pytest.raises(ToolError):
            driver.execute_js(wrong)


LONG = "<title>long</title><style>::-webkit-scrollbar {{ display: none }}</style><body style='margin:0'><div style='height:{}px;background:linear-gradient(red,blue)'>"


def shot(driver: TMWebDriver, **how: Any) -> tuple[int, int, Any, list[int]]:
    """(width, height, scale, colour of the middle) of a screenshot."""
    result = driver.execute_js({"cmd": "screenshot", **how})
    width, height = struct.unpack(">II", base64.b64decode(result["image"]["data"])[16:24])
    look = (
        f"const i = new Image(); i.src = 'data:image/png;base64,{result['image']['data']}'; await i.decode(); const c = new OffscreenCanvas(1, 1).getContext('2d');"
        "c.drawImage(i, i.width >> 1, i.height >> 1, 1, 1, 0, 0, 1, 1); [...c.getImageData(0, 0, 1, 1).data]"
    )
    return width, height, result["image"].get("scale", 1), value(driver, look)


@pytest.mark.slow
@pytest.mark.parametrize(("ratio", "zoom"), [(1, 1), (2, 1), (3, 1), (1, 1.5), (2, 0.5)])
def test_a_screenshot_is_never_larger_than_models_take(
    driver: TMWebDriver, site: Site, shared: Bridged, ratio: int, zoom: float
) -> None:
    site.pages["/long"] = LONG.format(5000)
    driver.jump(site.url + "/long")
    screen = {"width": 1280, "height": 900, "deviceScaleFactor": ratio, "mobile": False}
    driver.execute_js({"cmd": "cdp", "method": "Emulation.setDeviceMetricsOverride", "params": screen})
    shared.chromium.worker(f"chrome.tabs.setZoom({driver.session}, {zoom}).then(() => 1)")
    until(lambda: abs(value(driver, "devicePixelRatio") - ratio * zoom) < 0.01)
    try:
        wide, high = value(driver, "[document.documentElement.clientWidth, innerHeight]")
        for scroll, red in ((0, 255 * (1 - high / 2 / 5000)), (2000, 255 * (1 - (2000 + high / 2) / 5000))):
            value(driver, f"scrollTo(0, {scroll})")
            width, height, scale, colour = shot(driver)
            assert max(width, height) <= 1568 and scale == min(1, round(1568 / max(wide, high), 4))
            assert (abs(width - wide * scale) < 2, abs(height - high * scale) < 2) == (True, True)
            assert abs(colour[0] - red) < 5
            width, height, scale, colour = shot(driver, full=True)
            assert (height, scale) == (1568, 0.3136) and abs(width - wide * scale) < 2 and abs(colour[0] - 127) < 5
            clip = {"x": 100, "y": 4000, "width": 50, "height": 100}
            *size, colour = shot(driver, clip=clip)
            assert size == [50, 100, 1] and abs(colour[0] - 255 * 0.19) < 5  # also what is scrolled out of sight
            assert shot(driver, clip={**clip, "scale": 4})[:3] == (200, 400, 4)
            assert shot(driver, clip={**clip, "scale": 100})[:3] == (784, 1568, 15.68)
    finally:
        shared.chromium.worker(f"chrome.tabs.setZoom({driver.session}, 1).then(() => 1)")


def test_a_tab_behind_another_has_its_picture_taken_and_stays_behind(
    driver: TMWebDriver, site: Site, shared: Bridged
) -> None:
    site.pages |= {"/green": "<body style='background:#0f0'>", "/blue": "<body style='background:#00f'>"}
    driver.jump(site.url + "/green")
    green = driver.session
    blue = driver.execute_js({"cmd": "tabs", "action": "create", "url": site.url + "/blue"})["tab"]
    driver.session = green
    assert shot(driver)[3][:3] == [0, 255, 0]
    assert [tab["id"] for tab in driver.get_all_sessions() if tab["active"]] == [blue]
    state = "chrome.windows.getLastFocused().then(w => chrome.windows.update(w.id, {{state: '{}'}})).then(w => w.state)"
    assert shared.chromium.worker(state.format("minimized")) == "minimized"
    try:
        with pytest.raises(ToolError, match="minimised"):
            shot(driver)
    finally:
        shared.chromium.worker(state.format("normal"))
    assert shot(driver)[3][:3] == [0, 255, 0]


def test_what_a_screenshot_leaves_out_of_an_endless_page_is_said(driver: TMWebDriver, site: Site) -> None:
    site.pages["/long"] = LONG.format(20_000)
    driver.jump(site.url + "/long")
    result = driver.execute_js({"cmd": "screenshot", "full": True, "format": "jpeg"})
    assert result["image"]["scale"] == 0.098 and "4000 more are below" in result["note"]


def test_a_batch_refers_to_earlier_results_and_ends_at_the_first_error(driver: TMWebDriver, site: Site) -> None:
    steps = [
        {"cmd": "tabs", "action": "create", "url": site.url + "/two"}, {"cmd": "js", "tab": "{{0.tab}}", "code": "({n: 41, t: document.title})"},
        {"cmd": "js", "code": "{{1.value.n}} + 1"}, {"cmd": "js", "code": "return '{{1.value.t}}!'"},
    ]  # fmt: skip
    assert [r.get("value") for r in value(driver, {"cmd": "batch", "steps": steps})][1:] == [
        {"n": 41, "t": "two"},
        42,
        "two!",
    ]
    failed = driver.execute_js(
        {
            "cmd": "batch",
            "steps": [
                {"cmd": "js", "code": "1"},
                {"cmd": "js", "code": "x.y"},
                {"cmd": "js", "code": "globalThis.ran = 1"},
            ],
        }
    )
    assert [r.get("value") for r in failed["value"]] == [1, None] and "step 1 failed, 1 were not done" in failed[
        "error"
    ]
    assert value(driver, "globalThis.ran ?? 0") == 0


# frames and page scripts


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page script of the test's own, `probe`."""
    shipped = paths.shipped
    monkeypatch.setattr(
        paths, "shipped", lambda *parts: tmp_path / parts[-1] if parts[-1] == "probe.js" else shipped(*parts)
    )
    return tmp_path / "probe.js"


def test_a_page_script_looks_into_every_frame_unseen(driver: TMWebDriver, site: Site, probe: Path) -> None:
    driver.jump(site.url + "/frames")
    probe.write_text(
        "globalThis.n = (globalThis.n ?? 0) + 1; if (args.fail) throw new Error('oh');\n"
        "return {n, x: args.x, at: location.href, open: typeof chrome.dom.openOrClosedShadowRoot, page: typeof window.pageVar}"
    )
    driver.execute_js("window.pageVar = 1")
    result = driver.page_script("probe", {"x": [1, "ä"]})
    assert result["title"] == "frames" and result["frames"][0]["frame"] == 0
    found = {one["value"]["at"]: one["value"] for one in result["frames"]}
    assert set(found) == {site.url + "/frames", site.url + "/two", site.other + "/none", "about:srcdoc"}
    assert all((v["n"], v["x"], v["open"], v["page"]) == (1, [1, "ä"], "function", "undefined") for v in found.values())
    assert [one["value"]["n"] for one in driver.page_script("probe")["frames"]] == [2] * 4
    assert all("oh" in one["error"] for one in driver.page_script("probe", {"fail": True})["frames"])
    assert len(driver.page_script("probe", all_frames=False)["frames"]) == 1
    assert value(driver, "typeof globalThis.n + typeof globalThis.gaPage") == "undefinedundefined"
    probe.write_text("return 'new version'")
    assert driver.page_script("probe")["frames"][0]["value"] == "new version"


@pytest.mark.slow
def test_looking_needs_no_debugger(bridged: Bridged, site: Site, probe: Path) -> None:
    bridged.chromium.worker(f"chrome.tabs.create({{url: '{site.url}/none'}}).then(() => 1)")
    until(lambda: bridged.driver.set_session("/none"))
    probe.write_text("return document.querySelector('h1').textContent")
    result = bridged.driver.page_script("probe")
    assert (result["via"], result["frames"]) == ("page", [{"frame": 0, "value": "No scripts"}])
    assert (
        bridged.chromium.worker(
            "chrome.debugger.getTargets().then(all => all.some(t => t.attached && t.type === 'page'))"
        )
        is False
    )


def test_code_runs_in_the_frame_it_is_meant_for(driver: TMWebDriver, site: Site, probe: Path) -> None:
    driver.jump(site.url + "/frames")
    probe.write_text("return location.href")
    for one in driver.page_script("probe")["frames"] * 2:
        assert value(driver, "const h = location.href; return h", frame=one["frame"]) == one["value"]
    with pytest.raises(ToolError):
        driver.execute_js("1", frame=987)


def test_a_page_script_around_sees_what_the_code_did(driver: TMWebDriver, site: Site, probe: Path) -> None:
    driver.jump(site.url + "/dialogs")
    probe.write_text(
        "if (args.phase === 'begin') { globalThis.seen = []; new MutationObserver(l => seen.push(l.length)).observe(document, {subtree: true, childList: true}); return }\n"
        "await new Promise(d => setTimeout(d, args.wait)); return {seen: seen.length, phase: args.phase}"
    )
    result = driver.execute_js("document.body.append('x'); 5", around="probe", args={"wait": 20})
    assert (result["value"], result["around"]) == (5, [{"frame": 0, "value": {"phase": "end", "seen": 1}}])
    late = driver.execute_js("setTimeout(() => alert('late'), 50); 1", around="probe", args={"wait": 300})
    assert late["dialogs"][0]["message"] == "late" and late["around"]
    left = driver.execute_js("setTimeout(() => location.href = '/two', 50); 1", around="probe", args={"wait": 5000})
    assert (left["navigated"], left["around"], left["value"]) == (site.url + "/two", [], 1)


def test_a_page_that_does_not_answer_is_an_error_of_the_look(driver: TMWebDriver, site: Site, probe: Path) -> None:
    probe.write_text("await new Promise(() => {})")
    driver.jump(site.url + "/")
    with pytest.raises(ToolError, match="not finished after 1 s"):
        driver.page_script("probe", timeout=1)
    probe.write_text("return 1")
    assert driver.page_script("probe")["frames"] == [{"frame": 0, "value": 1}]


def test_a_tab_in_the_background_or_asleep_works_like_any(driver: TMWebDriver, site: Site, shared: Bridged) -> None:
    driver.jump(site.url + "/form")
    tab = driver.session
    driver.execute_js({"cmd": "tabs", "action": "create", "url": site.url + "/two"})
    code = "const q = document.forms[0].q; let n = 0; q.onfocus = () => n++; q.focus(); return [n, document.hasFocus()]"
    assert value(driver, code, session_id=tab) == [1, True]
    shared.chromium.worker(
        f"chrome.debugger.detach({{tabId: {tab}}}).catch(() => 0).then(() => chrome.tabs.discard({tab})).then(() => 1)"
    )
    assert value(driver, "document.title", session_id=tab) == "form"


# without the debugger, pauses, restarts


@pytest.mark.slow
def test_without_the_debugger_the_page_itself_runs_the_code(bridged: Bridged, site: Site) -> None:
    bridged.chromium.worker(
        "chrome.debugger.attach = () => Promise.reject(new Error('another extension is in this page')), 1"
    )
    driver = bridged.driver
    assert driver.jump(site.url + "/")["via"] == "page"
    until(lambda: driver.execute_js("document.title").get("value") == "home")
    for code, wanted in (
        ("1 + 1", 2),
        ("return 3", 3),
        ("const a = 4; a", 4),
        ("await Promise.resolve(5)", 5),
        ("({a: [false]})", {"a": [False]}),
        ("undefined", None),
    ):
        result = driver.execute_js(code)
        assert (result.get("value"), result["via"]) == (wanted, "page"), result
    assert "ReferenceError" in driver.execute_js("nope.x")["error"]
    assert driver.execute_js("await new Promise(() => {})", 1)["kind"] == "timeout"
    driver.jump(site.url + "/none")
    with pytest.raises(ToolError, match="policy.*debugger"):
        until(lambda: driver.execute_js("1").get("error"))
    with pytest.raises(ToolError, match="does not let us debug this tab: another extension"):
        driver.execute_js({"cmd": "screenshot"})


@pytest.mark.slow
def test_the_user_pauses_and_chooses_tabs(bridged: Bridged, site: Site) -> None:
    driver, worker = bridged.driver, bridged.chromium.worker
    driver.jump(site.url + "/")
    driver.jump(site.url + "/two", session_id=None)
    first = driver.session
    worker("chrome.storage.local.set({paused: true}).then(() => 1)")
    for call in (driver.get_all_sessions, lambda: driver.execute_js("1")):
        with pytest.raises(ToolError, match="paused"):
            call()
    worker(
        "chrome.storage.local.set({paused: false, only_ticked: true}).then(() => chrome.storage.session.set({ticked: []})).then(() => 1)"
    )
    assert driver.get_all_sessions() == []
    with pytest.raises(ToolError, match="not shared"):
        driver.execute_js("1", session_id=first)
    assert value(driver, "1") == 1  # in a tab of its own
    assert [t["url"] for t in driver.get_all_sessions()] == ["about:blank"]
    driver.jump(site.url + "/")
    assert len(driver.execute_js("window.open('/two'); 1")["new_tabs"]) == 1
    assert len(driver.get_all_sessions()) == 2  # what a shared tab opens is shared


def state(bridged: Bridged) -> Any:
    """What the popup says first."""
    return bridged.chromium.popup("document.querySelector('#state')?.textContent")


@pytest.mark.slow
def test_the_popup_says_who_is_connected_and_pauses(bridged: Bridged) -> None:
    popup = bridged.chromium.popup
    until(lambda: state(bridged) == "Connected")
    assert f"process {os.getpid()}, port {bridged.ports[0]}" in popup("why.textContent")
    popup("pause.click()")
    until(lambda: "Paused" in popup("state.textContent"))
    with pytest.raises(ToolError, match="paused"):
        bridged.driver.execute_js("1")
    popup("pause.click(); ticked.click()")
    until(lambda: popup("state.textContent") == "Connected" and not popup("document.querySelector('#this').disabled"))
    assert bridged.driver.get_all_sessions() == []
    popup("all.click()")
    until(lambda: bridged.driver.get_all_sessions())
    bridged.driver.close()
    until(lambda: popup("state.textContent") == "No agent")
    until(lambda: f"Nobody answers at port {bridged.ports[0]}" in popup("why.textContent"))


@pytest.mark.slow
def test_it_connects_where_pages_are_kept_from_local_addresses(tmp_path: Path) -> None:  # C098
    """With the newer checks of local network access on: a page from outside doesn't reach a server here, the extension does."""
    with serving({"/": "page"}) as outside, serving({"/": ("here", {"Access-Control-Allow-Origin": "*"})}) as here:
        flags = (
            "--enable-features=LocalNetworkAccessChecks:LocalNetworkAccessChecksWarn/false,LocalNetworkAccessChecksWebSockets",
            f"--ip-address-space-overrides={outside.url.removeprefix('http://')}=public",
        )
        bridged = Bridged(tmp_path, *flags)
        try:
            bridged.driver.jump(outside.url + "/")
            assert value(bridged.driver, f"fetch('{here.url}/').catch(error => 'kept out')") == "kept out"
            assert here.seen == []
            until(lambda: state(bridged) == "Connected")
        finally:
            bridged.close()


def test_when_the_browser_blocks_the_way_the_popup_says_why(tmp_path: Path) -> None:  # C098
    bridged = Bridged(tmp_path, "--host-resolver-rules=MAP 127.0.0.1 ~NOTFOUND", connects=False)
    try:
        until(lambda: state(bridged) == "No agent")
        why = bridged.chromium.popup("why.textContent")
        assert f"port {bridged.ports[0]}" in why and "keeps this extension from addresses of this computer" in why
        assert not bridged.driver._ask("browsers")
    finally:
        bridged.close()


@pytest.mark.slow
def test_the_popup_says_that_who_answers_is_not_ours(tmp_path: Path) -> None:
    bridged = Bridged(tmp_path)
    try:
        until(lambda: state(bridged) == "Connected")
        (bridged.extension / "pairing.json").write_text(json.dumps({"secret": "x" * 43, "port": bridged.ports[0]}))
        bridged.chromium.stop_worker()
        until(lambda: state(bridged) == "Not paired")
        assert "did not accept this extension" in bridged.chromium.popup("why.textContent")
        (bridged.extension / "pairing.json").unlink()
        bridged.chromium.stop_worker()
        until(lambda: state(bridged) == "Not set up")
        assert "ga browser setup" in bridged.chromium.popup("why.textContent")
    finally:
        bridged.close()


def test_code_in_frames_is_no_navigation_of_the_page(driver: TMWebDriver, site: Site) -> None:
    driver.jump(site.url + "/frames")
    for code in (
        "frames[0].location.hash = 'x'",
        "frames[0].history.pushState({}, '', '/pushed')",
        "frames[0].location.href = '/'; await new Promise(d => setTimeout(d, 200))",
    ):
        result = driver.execute_js(code)
        assert "navigated" not in result and "error" not in result, result


@pytest.mark.slow
def test_it_reconnects_after_a_restart_of_the_worker(bridged: Bridged, site: Site) -> None:  # C085
    driver = bridged.driver
    driver.jump(site.url + "/")
    tab = driver.session
    before = driver.status()["browsers"][0]["id"]
    bridged.chromium.stop_worker()
    until(lambda: not driver._ask("browsers"))
    assert driver.get_all_sessions()[-1]["id"] == tab  # waits for it
    assert value(driver, "document.title") == "home"
    assert driver.status()["browsers"][0]["id"] == before


@pytest.mark.slow
def test_it_reconnects_after_a_restart_of_ours_and_a_second_process_takes_over(bridged: Bridged) -> None:
    assert value(bridged.driver, "1") == 1
    second = TMWebDriver(home=bridged.home)
    assert value(second, "2") == 2 and isinstance(second._bridge, server.Link)
    bridged.driver.close()
    assert value(second, "3") == 3 and isinstance(second._bridge, server.Bridge)
    assert value(bridged.driver, "4") == 4 and isinstance(bridged.driver._bridge, server.Link)
    second.close()
    assert value(bridged.driver, "5") == 5


@pytest.mark.slow
def test_status_is_a_real_round_trip(
    bridged: Bridged, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # C086
    monkeypatch.setenv("GA_HOME", str(bridged.home))
    assert run_browser(["status"]) == 0
    assert "connected, answered in" in capsys.readouterr().out
    bridged.chromium.signal(signal.SIGSTOP)
    try:
        begin = time.monotonic()
        assert run_browser(["status"]) == 1
        assert time.monotonic() - begin < 20
    finally:
        bridged.chromium.signal(signal.SIGCONT)
    assert "no answer" in (out := capsys.readouterr().out) and "last contact" in out
    bridged.chromium.close()
    until(lambda: not bridged.driver._ask("browsers"))
    assert bridged.driver.status()["gone"] is not None


@pytest.mark.slow
def test_two_profiles_are_named_and_addressed(bridged: Bridged, site: Site, tmp_path: Path) -> None:  # C088
    driver = bridged.driver
    driver.jump(site.url + "/two?first")
    plain = driver.session
    second = Chromium(bridged.extension, tmp_path / "second")
    try:
        until(lambda: len(driver.status()["browsers"]) == 2)
        tabs = driver.get_all_sessions()
        assert len({t["browser"] for t in tabs}) == 2 and all(
            t["id"] == f"{t['browser']}:{t['id'].split(':')[1]}" for t in tabs
        )
        here = driver.execute_js("location.href")  # the tab from before
        assert here["value"].endswith("?first") and here["tab"].endswith(f":{plain}")
        there = next(t for t in tabs if t["browser"] != here["tab"].split(":")[0])
        assert value(driver, "location.href", session_id=there["id"]) == "about:blank"
    finally:
        second.close()
    until(lambda: len(driver.status()["browsers"]) == 1)
    assert value(driver, "location.href", session_id=plain).endswith("?first")


def test_a_page_cannot_reach_the_bridge_or_the_extension(
    driver: TMWebDriver, site: Site, shared: Bridged
) -> None:  # C145
    driver.jump(site.url + "/")
    status = driver.status()
    code = f"""const outcome = [];
        for (const url of ['ws://127.0.0.1:{status["port"]}/', 'ws://localhost:{status["port"]}/', 'ws://127.0.0.1:{status["link_port"]}/'])
          outcome.push(await new Promise(done => {{ const ws = new WebSocket(url); ws.onopen = ws.onmessage = () => done('open'); ws.onclose = () => done('closed'); }}));
        for (const path of ['status', 'browsers', 'call'])
          for (const mode of ['cors', 'no-cors'])
            outcome.push(await fetch('http://127.0.0.1:{status["link_port"]}/' + path, {{method: 'POST', mode, body: '{{}}'}}).then(async r => (await r.text()) || 'nothing', () => 'failed'));
        for (const file of ['pairing.json', 'manifest.json', 'popup.html'])
          outcome.push(await fetch('chrome-extension://{wire.EXTENSION_ID}/' + file).then(() => 'open', () => 'failed'));
        return outcome"""
    assert set(value(driver, code)) == {"closed", "failed", "nothing"}
