"""The policy against an independent statement of the contract, and rules that may be neither loose nor void."""

from __future__ import annotations

import itertools
import shlex
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genericagent.errors import ConfigError
from genericagent.safety.policy import (
    Action,
    Decision,
    Grants,
    Mode,
    Origin,
    Risk,
    Rules,
    Verdict,
    decide,
    parse_rules,
    rule_for,
    settle,
    strictest,
)

TOOLS = ("code_run", "file_read", "file_write", "web_scan")
ORIGINS: tuple[Origin, ...] = get_args(Origin)
RISKS: tuple[Risk, ...] = get_args(Risk)
TARGET = {"read": "/d/a", "write": "/d/a", "exec": "make x", "send": "a.io", "control": "crontab x"}
PATTERN = {"read": "/d/**", "write": "/d/**", "exec": "make *", "send": "a.io", "control": "crontab *"}
KINDS = ("none", "risk", "tool", "star", "pattern", "destructive", "destructive pattern", "other")


def texts(kind: str, risk: Risk) -> list[str]:
    return {
        "none": [],
        "risk": [risk],
        "tool": ["code_run"],
        "star": ["*"],
        "pattern": [f"{risk}:{PATTERN[risk]}"],
        "destructive": ["destructive"],
        "destructive pattern": [f"destructive:{PATTERN[risk]}"],
        "other": ["file_write" if risk != "write" else "read", "send:b.io" if risk == "send" else f"{risk}:/e/**"],
    }[kind]


def rules(allow: list[str] = [], ask: list[str] = [], deny: list[str] = []) -> Rules:  # noqa: B006 - never changed
    return parse_rules(allow, ask, deny, TOOLS, real=lambda path: path)


# --- the truth table: what a person reads in the contract, row by row ---

# (risk, flag) → origins where it is allowed by default; "contained" = only with a sandbox or without one by the user's word
EVERYWHERE = frozenset(ORIGINS)
DEFAULTS: dict[tuple[str, str], tuple[frozenset[str], frozenset[str]]] = {  # (allowed, allowed if contained)
    ("read", "plain"): (EVERYWHERE, EVERYWHERE),
    ("write", "plain"): (EVERYWHERE, EVERYWHERE),
    ("write", "outside"): (frozenset(), frozenset()),
    ("write", "memory"): (EVERYWHERE, EVERYWHERE),
    ("exec", "plain"): (frozenset({"chat", "script"}), EVERYWHERE),
    ("send", "plain"): (frozenset(), frozenset()),
    ("send", "known"): (EVERYWHERE, EVERYWHERE),
    ("control", "plain"): (frozenset(), frozenset()),
}
SUSPECT = {("write", "outside"), ("write", "memory"), ("send", "plain")}  # what a tainted task is asked about again


def expected(case: tuple[str, str], destructive: bool, mode: Mode, allow: str, ask: str, deny: str) -> str:
    speaks_of = {"risk", "tool", "star", "pattern"} | ({"destructive", "destructive pattern"} if destructive else set())
    if deny in speaks_of:
        return "deny"
    distrust = mode.tainted and case in SUSPECT
    permitted = allow in (speaks_of & ({"destructive", "destructive pattern"} if destructive else speaks_of))
    if distrust and allow not in ("pattern", "destructive pattern"):
        permitted = False
    if (destructive and not permitted) or ask in speaks_of:
        return "ask"
    if permitted:
        return "allow"
    free, contained = DEFAULTS[case]
    usual = mode.origin in (contained if mode.sandboxed or mode.sandbox_waived else free)
    return "allow" if usual and not distrust else "ask"


@pytest.mark.slow
def test_every_combination_gives_the_verdict_of_the_contract() -> None:
    rows = 0
    parsed = {(e, k, r): rules(**{e: texts(k, r)}) for e in ("ask", "deny") for k in KINDS for r in RISKS}
    for (risk, flag), destructive in itertools.product(DEFAULTS, (False, True)):
        flags = {} if flag == "plain" else {flag: True}
        action = Action("code_run", risk, (TARGET[risk],), destructive="a disk" if destructive else "", **flags)  # type: ignore[arg-type]
        for allow, ask, deny in itertools.product(KINDS, KINDS, KINDS):
            if allow == "other" and risk in ("read", "write"):
                allowed = rules(allow=["send:b.io", f"{risk}:/e/**"])
            else:
                allowed = rules(allow=texts(allow, risk))  # type: ignore[arg-type]
            all_rules = Rules(allowed.allow, parsed["ask", ask, risk].ask, parsed["deny", deny, risk].deny)  # type: ignore[index]
            for origin, *switches in itertools.product(ORIGINS, (False, True), (False, True), (False, True)):
                mode = Mode(origin, *switches)
                want = expected((risk, flag), destructive, mode, allow, ask, deny)
                got = decide(action, all_rules, mode)
                assert got.verdict == want, (action, mode, allow, ask, deny, got)
                final = settle(got, origin).verdict
                assert final == ("deny" if want == "ask" and origin in ("script", "watcher") else want)
                rows += 1
    assert rows == 16 * 8**3 * 32


# --- properties ---

RULE_TEXTS = st.sampled_from(
    [
        "*",
        "read",
        "write",
        "exec",
        "send",
        "control",
        "destructive",
        "code_run",
        "write:/d/**",
        "exec:make*",
        "send:*.io",
        "destructive:make*",
        "control:crontab*",
        "*:/d/**",
    ]
)
RULE_LISTS = st.lists(RULE_TEXTS, max_size=3)
ACTIONS = st.builds(
    Action,
    st.sampled_from(TOOLS),
    st.sampled_from(RISKS),
    st.lists(st.sampled_from(["/d/a", "/e/b", "a.io", "make x", "rm -rf y"]), max_size=2).map(tuple),
    st.booleans(),
    st.sampled_from(["", "a disk"]),
    st.booleans(),
    st.booleans(),
    st.lists(st.sampled_from(["make x", "rm -rf y"]), max_size=2).map(tuple),
)
MODES = st.builds(Mode, st.sampled_from(ORIGINS), st.booleans(), st.booleans(), st.booleans())
STRICT: dict[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}


@given(ACTIONS, RULE_LISTS, RULE_LISTS, MODES)
def test_a_deny_rule_that_speaks_of_the_action_always_wins(
    action: Action, allow: list[str], ask: list[str], mode: Mode
) -> None:
    assert decide(action, rules(allow, ask, [action.risk]), mode).verdict == "deny"


@given(ACTIONS, RULE_LISTS, RULE_LISTS, RULE_LISTS, RULE_TEXTS, MODES)
def test_one_more_ask_or_deny_rule_never_loosens(
    action: Action, allow: list[str], ask: list[str], deny: list[str], more: str, mode: Mode
) -> None:
    before = STRICT[decide(action, rules(allow, ask, deny), mode).verdict]
    assert STRICT[decide(action, rules(allow, [*ask, more], deny), mode).verdict] >= before
    assert STRICT[decide(action, rules(allow, ask, [*deny, more]), mode).verdict] >= before


@given(ACTIONS, RULE_LISTS, RULE_LISTS, RULE_LISTS, MODES)
def test_text_from_outside_never_loosens(
    action: Action, allow: list[str], ask: list[str], deny: list[str], mode: Mode
) -> None:
    clean, tainted = (decide(action, rules(allow, ask, deny), replace(mode, tainted=t)) for t in (False, True))
    assert STRICT[tainted.verdict] >= STRICT[clean.verdict]


@given(ACTIONS, RULE_LISTS, RULE_LISTS, RULE_LISTS, MODES)
def test_where_nobody_is_nothing_is_asked(
    action: Action, allow: list[str], ask: list[str], deny: list[str], mode: Mode
) -> None:
    for origin in ("script", "watcher"):
        assert settle(decide(action, rules(allow, ask, deny), replace(mode, origin=origin)), origin).verdict != "ask"


OFFERED = st.sampled_from(
    [
        Action("file_write", "write", ("/d/a b*[x]",), outside=True), Action("code_run", "send", ("a.io", "b.io")), Action("code_run", "control", ("crontab -",)),
        Action("file_write", "control", ("/h/.bashrc",)), Action("code_run", "exec", ("make x && rm 'a b' *",), parts=("make x", "rm a b *")),
        Action("code_run", "exec", ("rm -rf /d\nls",), destructive="delete of /d", parts=("rm -rf /d", "ls")), Action("file_read", "read", ("/d/~",)),
        Action("code_run", "send", ("unknown-host",)), Action("file_write", "write", ("/d/a",), destructive="x", outside=True), Action("x", "send", ("::1",)),
    ]
)  # fmt: skip


@given(OFFERED, MODES)
def test_the_rule_that_is_offered_permits_exactly_this(action: Action, mode: Mode) -> None:
    offered = shlex.split("--allow " + rule_for(action))
    assert offered[::2] == ["--allow"] * (len(offered) // 2)
    assert decide(action, rules(allow=offered[1::2]), mode).verdict == "allow"
    other = replace(
        action, targets=tuple(f"{target}0" for target in action.targets), parts=tuple(f"{p}0" for p in action.parts)
    )
    assert decide(other, rules(allow=offered[1::2]), mode) == decide(other, Rules(), mode)


@pytest.mark.parametrize(
    "script", ["rm -rf /tmp/*", "a\nb  c", "echo '[x]' ? \"$y\"", "x;y && z", "a:b", "# c\nrm x", " x "]
)
def test_the_rule_that_is_offered_survives_a_shell(script: str) -> None:
    action = Action("code_run", "exec", (script,), destructive="x", parts=("a", "b"))
    (rule,) = shlex.split(rule_for(action))
    assert decide(action, rules(allow=[rule]), Mode("watcher")).verdict == "allow"
    flat = replace(action, targets=(" ".join(script.split()) + " ",))
    if "\n" in script:
        assert decide(flat, rules(allow=[rule]), Mode("chat")).verdict == "ask"


# --- patterns ---

CHAT = Mode("chat")


def verdict(action: Action, **texts: list[str]) -> str:
    return decide(action, rules(**texts), CHAT).verdict


@pytest.mark.parametrize(
    ("pattern", "path", "covered"),
    [
        ("/d/notes", "/d/notes", True), ("/d/notes", "/d/notes/a/b", True), ("/d/notes", "/d/notes2", False), ("/d/notes/", "/d/notes/a", True), ("/d/*", "/d/a", True),
        ("/d/*", "/d/a/b", False), ("/d/**", "/d/a/b", True), ("/d/**/x.md", "/d/a/b/x.md", True), ("/d/**/x.md", "/d/x.md", True), ("/d/**/x.md", "/d/x.mdx", False),
        ("/d/*.md", "/d/a.md", True), ("/d/*.md", "/d/a/b.md", False), ("/d/?", "/d/a", True), ("/d/?", "/d/ab", False), ("/d/[x]", "/d/[x]", True), ("/d/[x]", "/d/x", False), ("/d/[*]", "/d/*", True),
        ("/d/[*]", "/d/a", False), ("/D/a", "/d/a", False), ("**/.env", "/x/y/.env", True), ("/", "/anything", True), ("/d/a\nb", "/d/a\nb", True), ("/d/*", "/d/a\nb", True),
    ],
)  # fmt: skip
def test_an_allow_rule_for_a_path_covers_that_and_no_more(pattern: str, path: str, covered: bool) -> None:
    assert (
        verdict(Action("file_write", "write", (path,), outside=True), allow=[f"write:{pattern}"]) == "allow"
    ) is covered


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/d/Notes", "/d/notes/a"),
        ("/d/*", "/d/a/b/c"),
        (".env", "/x/.ENV"),
        ("secret/**", "/x/secret/y"),
        ("/d/caf\u00e9", "/d/cafe\u0301"),
        ("/d/[x]", "/d/[x]/a"),
        ("C:\\x", "c:\\X\\y"),
    ],
)
def test_a_deny_rule_for_a_path_is_read_widely(pattern: str, path: str) -> None:
    assert verdict(Action("file_read", "read", (path,)), deny=[f"read:{pattern}"]) == "deny"


def test_a_deny_rule_for_a_link_holds_for_what_it_leads_to() -> None:
    deny = parse_rules(
        [], [], ["read:/link/x/*.key", "write:/link"], TOOLS, real=lambda path: path.replace("/link", "/real")
    )
    assert decide(Action("file_read", "read", ("/real/x/a.key",)), deny, CHAT).verdict == "deny"
    assert decide(Action("file_write", "write", ("/real/y",)), deny, CHAT).verdict == "deny"
    assert decide(Action("file_write", "write", ("/other/y",)), deny, CHAT).verdict == "allow"


@pytest.mark.parametrize(
    ("pattern", "host", "covered"),
    [
        ("a.io", "a.io", True), ("a.io", "A.IO.", True), ("a.io", "x.a.io", False), ("*.a.io", "x.a.io", True), ("*.a.io", "a.io", False), ("*.a.io", "xa.io", False), ("a.io", "a.io:8443", True),
        ("a.io", "a.io.evil.com", False), ("[::1]", "::1", True), ("b\u00fccher.de", "xn--bcher-kva.de", True), ("a-io", "a.io", False),
    ],
)  # fmt: skip
def test_a_rule_for_a_host_covers_subdomains_only_when_it_says_so(pattern: str, host: str, covered: bool) -> None:
    assert (verdict(Action("code_run", "send", (host,)), allow=[f"send:{pattern}"]) == "allow") is covered


def test_a_deny_rule_for_subdomains_holds_for_the_domain_too() -> None:
    assert verdict(Action("code_run", "send", ("a.io",), known=True), deny=["send:*.a.io"]) == "deny"


def run(*parts: str, script: str = "") -> Action:
    return Action("code_run", "exec", (script or "; ".join(parts),), parts=parts)


WATCHER = Mode("watcher")


def test_an_allow_rule_for_a_command_must_cover_all_the_commands_of_a_script() -> None:
    git = rules(allow=["code_run:git status*"])
    assert decide(run("git status -s"), git, WATCHER).verdict == "allow"
    assert decide(run("git   status\t-s"), git, WATCHER).verdict == "allow"
    assert decide(run("git status", "rm -rf ~"), git, WATCHER).verdict == "ask"
    assert decide(Action("code_run", "exec", ("git status; rm -rf ~",)), git, WATCHER).verdict == "ask"
    assert decide(Action("code_run", "exec", ("git status\nrm -rf ~",)), git, WATCHER).verdict == "ask"
    both = rules(allow=["code_run:git status*", "exec:ls*"])
    assert decide(run("git status", "ls -l"), both, WATCHER).verdict == "allow"


@pytest.mark.parametrize("rule", ["code_run:rm -rf*", "exec:RM *", "*:*-rf ~*", "exec:git status; rm*"])
@pytest.mark.parametrize("effect", ["ask", "deny"])
def test_an_ask_or_deny_rule_for_a_command_needs_only_one_of_them(rule: str, effect: str) -> None:
    assert verdict(run("git status", "rm  -rf ~"), **{effect: [rule]}) == effect


def test_several_targets_need_a_rule_for_each() -> None:
    action = Action("code_run", "send", ("a.io", "b.io"))
    assert verdict(action, allow=["send:a.io"]) == "ask"
    assert verdict(action, allow=["send:a.io", "send:b.io"]) == "allow"
    assert verdict(action, deny=["send:b.io"]) == "deny"


def test_a_rule_for_everything_is_no_rule_for_something_once_text_from_outside_was_read() -> None:
    action = Action("code_run", "send", ("a.io",))
    for rule in ("send", "*", "send:*", "code_run"):
        assert decide(action, rules(allow=[rule]), CHAT).verdict == "allow"
        assert decide(action, rules(allow=[rule]), replace(CHAT, tainted=True)).verdict == "ask"


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "writ",
        "writ:/x",
        "write:",
        "write: ",
        ":x",
        "Write",
        "file_wrte:/x",
        "send:https://a.io/x",
        "send:a.io:80",
        "send:a.io/x",
        "send:a b",
        "~/x",
        "/x/**",
        "destruct",
        "exec ls",
        5,
    ],
)
@pytest.mark.parametrize("effect", ["allow", "ask", "deny"])
def test_a_misspelt_rule_is_refused_by_name_and_never_void(text: str, effect: str) -> None:
    with pytest.raises(ConfigError) as refused:
        rules(**{effect: [text]})
    assert repr(text) in str(refused.value) and effect in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["write:notes/x", "read:./x", "file_write:x", "write:*.md"])
def test_an_allow_rule_that_could_never_match_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="never match"):
        rules(allow=[text])


def test_a_home_in_a_rule_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert verdict(Action("file_write", "write", ("/home/me/n/x",), outside=True), allow=["write:~/n"]) == "allow"


# --- several at once, answers ---


def test_the_strictest_decides_and_says_all_that_speaks_for_it() -> None:
    found = [
        Decision("allow", "a"),
        Decision("ask", "b", ("r",)),
        Decision("ask", "c", ("s",)),
        Decision("ask", "b", ("r",)),
    ]
    assert strictest(found) == Decision("ask", "b; c", ("r", "s"))
    assert strictest([*found, Decision("deny", "d")]).verdict == "deny"
    assert strictest([]) == Decision("allow")


def test_a_denial_says_how_to_permit_it() -> None:
    decision = settle(decide(Action("file_write", "write", ("/x y",), outside=True), Rules(), Mode("script")), "script")
    assert decision.verdict == "deny" and decision.rules == ("'write:/x y'",) and "/x y" in decision.why


ARGS = {"script": "rm x", "type": "bash", "_index": 3}


def test_an_answer_holds_for_exactly_that_call() -> None:
    grants = Grants()
    key = grants.key("code_run", ARGS, "/w")
    assert key == grants.key("code_run", {"type": "bash", "script": "rm x", "_index": 9}, "/w")
    others = [
        grants.key("code_run", {**ARGS, "script": "rm  x"}, "/w"), grants.key("code_run", {**ARGS, "x": None}, "/w"), grants.key("code_run", ARGS, "/v"),
        grants.key("file_write", ARGS, "/w"), grants.key("code_run", {"script": "rm x"}, "/w"),
    ]  # fmt: skip
    grants.grant(key, "session")
    assert grants.covers(key, False) and grants.covers(key, False)
    assert not any(grants.covers(other, False) for other in others)


def test_an_answer_for_once_is_used_up() -> None:
    grants = Grants()
    grants.grant("k", "once")
    assert grants.covers("k", False) and not grants.covers("k", False)


def test_an_answer_from_before_the_taint_does_not_hold_for_what_the_taint_makes_doubtful() -> None:
    grants = Grants()
    grants.grant("k", "session")
    assert not grants.covers("k", True) and grants.covers("k", True, guarded=False) and grants.covers("k", False)
    grants.grant("k", "session", tainted=True)
    assert grants.covers("k", True)


def test_the_rule_that_a_denial_names_is_taken_and_covers_that_port_alone() -> None:
    action = Action("web_execute_js", "send", ("localhost:8901",))
    mode = Mode("script", tainted=True)
    rule = rule_for(action)
    rules = parse_rules([rule], (), (), TOOLS)
    assert decide(action, rules, mode).verdict == "allow"
    assert decide(Action("web_execute_js", "send", ("localhost:9",)), rules, mode).verdict == "ask"
    assert (
        decide(Action("code_run", "send", ("localhost:9",)), parse_rules((), (), [rule], TOOLS), mode).verdict == "deny"
    )
