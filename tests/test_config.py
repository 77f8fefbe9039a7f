"""Configuration from files and the environment: what wins, what is named when it is wrong."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from genericagent import config, paths
from genericagent.errors import ConfigError

DOC = Path(__file__).parents[1] / "docs" / "CONFIG.md"


def load(home: Path, env: dict[str, str] | None = None, **more: Any) -> config.Config:
    return config.load(home, environ=env or {}, **more)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def names(found: config.Config) -> list[str]:
    return [m.name for m in found.models]


TOML = '[[llm]]\nname = "{0}"\napi = "anthropic"\nmodel = "m"\napi_key = "k-{0}"\nbase_url = "https://x.test"\n'
PY = "{0}_oai_config = {{'apikey': 'k-{0}', 'apibase': 'https://x.test/v1', 'model': 'm'}}\n"


def test_models_come_from_the_first_source_that_has_any(tmp_path: Path) -> None:
    home, beside = tmp_path / "home", tmp_path / "checkout"
    env = {"ANTHROPIC_API_KEY": "k-env", "OPENAI_API_KEY": "k-env2"}
    assert [m.source for m in load(home, env).models] == ["environment", "environment"]
    write(beside / "mykey.py", PY.format("beside"))
    assert names(load(home, env, beside=beside)) == ["beside_oai_config"]
    write(home / "mykey.json", '{"js_oai": {"apikey": "k-json", "apibase": "https://x.test/v1", "model": "m"}}')
    assert names(load(home, env, beside=beside)) == ["js_oai"]
    write(home / "mykey.py", PY.format("py"))
    assert names(load(home, env, beside=beside)) == ["py_oai_config"]
    write(home / "config.toml", TOML.format("toml"))
    assert names(load(home, env, beside=beside)) == ["toml"]
    given = write(tmp_path / "given.toml", TOML.format("given"))
    assert names(load(home, env, beside=beside, config_file=given)) == ["given"]


def test_other_settings_merge_key_by_key_and_the_first_source_wins(tmp_path: Path) -> None:
    home = tmp_path / "home"
    given = write(tmp_path / "given.toml", "[limits]\nmax_turns = 5\n")
    write(home / "config.toml", "[limits]\nmax_turns = 9\nmax_cost = 2\n[safety]\nenv_keep = ['A']\n")
    write(home / "mykey.py", "tg_bot_token = 'tok-123456'\ntg_allowed_users = [7]\n" + PY.format("py"))
    found = load(home, config_file=given)
    assert (found.limits.max_turns, found.limits.max_cost) == (5, 2.0)
    assert found.safety.env_keep == ["A"] and found.telegram.token == "tok-123456"
    assert found.telegram.allowed_users == [7] and names(found) == ["py_oai_config"]


@pytest.mark.parametrize(
    ("variable", "kind"),
    [("native_claude_config", "native_claude"), ("my_native_oai", "native_oai"), ("claude_config2", "claude"), ("oai_config", "oai"),
     ("OAI_X", "oai"), ("mixin_config", "mixin")],
)  # fmt: skip
def test_the_variable_name_in_mykey_says_which_session(tmp_path: Path, variable: str, kind: str) -> None:
    members = "'llm_nos': [0]" if kind == "mixin" else "'apikey': 'k123456'"
    write(tmp_path / "mykey.py", f"{variable} = {{{members}}}\nother = {{'apikey': 'x'}}\n")
    (model,) = load(tmp_path).models
    assert model.kind == kind and model.native is kind.startswith("native")


def test_one_broken_entry_of_three_is_named_with_its_line_and_skipped(tmp_path: Path) -> None:  # C155
    bad = '[[llm]]\nname = "bad"\napi = "chat"\napi_key = "k"\nbase_url = "x.test"\n'
    write(tmp_path / "config.toml", TOML.format("one") + bad + TOML.format("three"))
    found = load(tmp_path)
    assert names(found) == ["one", "three"]
    assert len(found.problems) == 1 and "config.toml:7" in found.problems[0] and "base_url" in found.problems[0]


@pytest.mark.parametrize(
    ("key", "said"),
    [("api_key = '<your key here>'", "placeholder"), ("api_key = ''", "api_key"), ("api_key = 3", "api_key must be text"),
     ("api_key = 'k'\nmax_retries = -1", "max_retries"), ("api_key = 'k'\ncontext_win = 'big'", "context_win"),
     ("api_key = 'k'\nstream = 'yes'", "stream"), ("api_key = 'k'\napi_mode = 'soap'", "api_mode")],
)  # fmt: skip
def test_a_placeholder_or_a_wrong_type_is_said_and_skipped(tmp_path: Path, key: str, said: str) -> None:  # C155
    write(tmp_path / "config.toml", f"[[llm]]\nmodel = 'm'\nbase_url = 'https://x.test'\n{key}\n")
    found = load(tmp_path)
    assert found.models == [] and said in found.problems[0]


def test_an_unknown_key_is_named_with_the_likely_one(tmp_path: Path) -> None:  # C155
    write(tmp_path / "config.toml", TOML.format("a") + "temprature = 1\n[limits]\nmaxturns = 3\n[limit]\nx = 1\n")
    found = load(tmp_path)
    assert names(found) == ["a"]
    text = "\n".join(found.problems)
    assert "temprature" in text and "'temperature'" in text and "max_turns" in text and "[limit]" in text


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [("config.toml", "[[llm]]\nname = \n", "line 2"), ("mykey.py", "a = 1\nb = {\n", "mykey.py:2"),
     ("mykey.py", "a = 1\n\nb = nope\n", "mykey.py:3"), ("mykey.json", '{\n"a": \n}', "line 3"), ("mykey.json", "[]", "object"),
     ("config.toml", "llm = 3\n", "[[llm]]"), ("config.toml", "name = 'x'\n", "name")],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_named_with_its_line(tmp_path: Path, name: str, text: str, where: str) -> None:
    write(tmp_path / name, text)
    with pytest.raises(ConfigError) as error:
        load(tmp_path, {"ANTHROPIC_API_KEY": "k"})
    assert name in str(error.value) and where in str(error.value)


def test_a_missing_config_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load(tmp_path, config_file=tmp_path / "nope.toml")


def test_keys_may_come_from_the_environment_or_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "k-from-env")
    write(tmp_path / "config.toml", TOML.format("a").replace("k-a", "env:SOME_KEY"))
    loaded = load(tmp_path, {"SOME_KEY": "k-from-env"})
    assert loaded.models[0].resolve_key() == "k-from-env" and "k-from-env" in loaded.secrets()
    monkeypatch.delenv("SOME_KEY")
    with pytest.raises(ConfigError, match="SOME_KEY"):
        loaded.models[0].resolve_key()
    assert load(tmp_path).models == [] and "SOME_KEY" in load(tmp_path).problems[0]
    counter = tmp_path / "asked"
    command = f"cmd:echo x >> {counter}; echo k-from-cmd"
    write(tmp_path / "config.toml", TOML.format("a").replace("k-a", command))
    model = load(tmp_path).models[0]
    assert model.resolve_key() == model.resolve_key() == "k-from-cmd"
    assert counter.read_text() == "x\n", "asked once"
    write(tmp_path / "config.toml", TOML.format("a").replace("k-a", "cmd:exit 3"))
    with pytest.raises(ConfigError, match="exit code 3"):
        load(tmp_path).models[0].resolve_key()


def test_an_edited_file_is_noticed_also_one_that_comes_or_goes(tmp_path: Path) -> None:  # C155
    found = load(tmp_path)
    assert not found.stale()
    file = write(tmp_path / "config.toml", TOML.format("a"))
    assert found.stale() and not (again := load(tmp_path)).stale()
    file.write_text(TOML.format("bb"), encoding="utf-8")
    assert again.stale()
    again = load(tmp_path)
    file.unlink()
    assert again.stale()


def test_a_byte_order_mark_and_emoji_are_read(tmp_path: Path) -> None:  # C154
    text = "\ufeff" + TOML.format("a").replace('"m"', '"m-😀"')
    (tmp_path / "config.toml").write_text(text, encoding="utf-8")
    assert load(tmp_path).models[0].model == "m-😀"


def test_the_page_lists_every_key_and_no_other() -> None:
    text = DOC.read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([a-z_]+)`", text, re.M))
    known = {f.name for f in fields(config.Model)} - {"kind", "source", "native", "number"}
    for section in (config.Limits, config.Safety, config.Telegram, config.Ui, config.Web):
        known |= {f.name for f in fields(section)}
    known |= {"extra_sys_prompt_file"}
    assert listed == known | {"input", "output", "cache_read", "cache_write"}
    for alias in config.ALIASES:
        assert f"`{alias}`" in text


@pytest.mark.parametrize("code", re.findall(r"```toml\n(.*?)```", DOC.read_text("utf-8") if DOC.exists() else "", re.S))
def test_the_examples_of_the_page_are_read_without_a_complaint(tmp_path: Path, code: str) -> None:
    write(tmp_path / "config.toml", code)
    found = load(tmp_path, {"MY_ANTHROPIC_KEY": "k", "DEEPSEEK_KEY": "k"})
    assert found.problems == [] and len(found.models) == code.count("[[llm]]")


def test_a_mistyped_address_never_sends_the_key_elsewhere(tmp_path: Path) -> None:
    write(tmp_path / "config.toml", '[[llm]]\nbas_url = "http://127.0.0.1:1"\napi_key = "k"\n' + TOML.format("good"))
    found = load(tmp_path)
    assert names(found) == ["good"] and "bas_url" in found.problems[0] and "base_url" in found.problems[0]


def test_a_number_in_a_mixin_means_the_entry_also_when_one_before_it_is_broken(tmp_path: Path) -> None:
    from llmcore import MixinSession, make_session

    bad = '[[llm]]\nname = "bad"\napi = "soap"\napi_key = "k"\n'
    mix = '[[llm]]\nname = "mix"\nmembers = [1, 2]\n'
    write(tmp_path / "config.toml", bad + TOML.format("one") + TOML.format("two") + mix)
    models = load(tmp_path).models
    session = make_session(models[-1], models)
    assert isinstance(session, MixinSession) and [m.name for m in session.members] == ["one", "two"]


@pytest.mark.parametrize(
    "price",
    [
        "input = 3",
        "inptu = 3\noutput = 1",
        'input = "3"\noutput = 1',
        "input = -1\noutput = 1",
        "input = nan\noutput = 1",
    ],
)
def test_a_price_without_its_numbers_is_named_and_left_out(tmp_path: Path, price: str) -> None:
    write(tmp_path / "config.toml", TOML.format("a") + f'[prices."m"]\n{price}\n')
    found = load(tmp_path)
    assert found.prices == {} and "prices" in found.problems[0]


@pytest.mark.parametrize(
    "limit", ["max_cost = -1", "max_turns = 0", "max_time = inf", "daily_cost = '2'", "max_turns = nan"]
)
def test_a_limit_that_makes_no_sense_is_an_error_that_names_the_file(tmp_path: Path, limit: str) -> None:
    write(tmp_path / "config.toml", f"[limits]\n{limit}\n")
    with pytest.raises(ConfigError, match="config.toml"):
        load(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "sandbox = 'on'",
        "sandbox = true",
        "net = false",
        "net = 'none'",
        "memory_mb = 0",
        "cpu_seconds = -1",
        "deny = 'rm'",
        "deny = [1]",
    ],
)
def test_a_safety_setting_that_means_nothing_stops_the_start(tmp_path: Path, line: str) -> None:
    write(tmp_path / "config.toml", TOML.format("a") + f"[safety]\n{line}\n")
    with pytest.raises(ConfigError, match="config.toml"):
        load(tmp_path)


def test_a_variable_whose_name_says_no_kind_is_named(tmp_path: Path) -> None:
    write(tmp_path / "mykey.py", "native_cluade_config = {'apikey': 'k-123456'}\n")
    found = load(tmp_path)
    assert found.models == [] and "native_cluade_config" in found.problems[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "entry",
    ["max_tokens = inf", "max_tokens = nan", "read_timeout = nan", "connect_timeout = 1e300", "read_timeout = 0", "idle_timeout = -5",
     'api = ["a"]', 'base_url = "http://["', 'extra_sys_prompt_file = "~nouser/x"', "members = 3", "name = 3", "max_retry_after = -1"],
)  # fmt: skip
def test_an_entry_of_nonsense_is_skipped_and_the_next_one_works(tmp_path: Path, entry: str) -> None:  # C155
    base = "" if "base_url" in entry else "base_url = 'https://x.test'\n"
    write(tmp_path / "config.toml", f"[[llm]]\nmodel = 'm'\napi_key = 'k'\n{base}{entry}\n" + TOML.format("good"))
    found = load(tmp_path)
    assert names(found)[-1] == "good" and len(found.models) == 1 and "config.toml:1" in found.problems[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text"),
    [("config.toml", "llm = [1, 2]\n"), ("config.toml", "[telegram]\nallowed_users = ['abc']\n"), ("config.toml", "a = " + "[" * 3000),
     ("mykey.json", "[" * 100_000), ("mykey.py", "import sys; sys.exit(0)"), ("mykey.py", "raise KeyboardInterrupt"), ("config.toml", "llm.api = 3\n")],
)  # fmt: skip
def test_a_file_of_nonsense_is_a_configuration_error(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path / name, text)
    with pytest.raises(ConfigError, match=name):
        load(tmp_path)


def test_what_mykey_prints_goes_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "mykey.py", "print('NOISE')\n" + PY.format("a"))
    load(tmp_path)
    out, err = capsys.readouterr()
    assert out == "" and "NOISE" in err


def test_a_key_in_the_wrong_form_is_not_shown(tmp_path: Path) -> None:
    write(tmp_path / "config.toml", "[[llm]]\nmodel = 'm'\nbase_url = 'https://x.test'\napi_key = ['sk-secret-1']\n")
    assert "sk-secret-1" not in " ".join(load(tmp_path).problems)


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "config.toml")
    with pytest.raises(ConfigError, match="config.toml"):
        load(tmp_path)


# private files and addresses


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")


@posix
@pytest.mark.parametrize("name", ["config.toml", "mykey.py", "mykey.json"])
@pytest.mark.parametrize("before", [0o644, 0o640, 0o604, 0o666, 0o700, 0o777, 0o600, 0o400])
def test_a_file_with_keys_is_open_to_others(tmp_path: Path, name: str, before: int) -> None:  # C149
    text = {"config.toml": TOML.format("a"), "mykey.py": PY.format("a")}.get(name, "{}")
    file = write(tmp_path / name, text)
    file.chmod(before)
    found = load(tmp_path)
    assert (
        mode(file) == (before & 0o600 if before & 0o077 else before)
        and found.problems == []
        and file.read_text() == text
    )
    assert len(found.told) == bool(before & 0o077) and all("now 0600" in line and name in line for line in found.told)
    assert load(tmp_path).told == [] and not found.stale(), "told once, and it is no edit"


@posix
def test_the_home_is_open_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # C149
    home = tmp_path / "ga"
    monkeypatch.setenv("GA_HOME", str(home))
    assert paths.ensure_home() == [] and mode(home) == 0o700
    home.chmod(0o2755)
    assert "now 0700" in paths.ensure_home()[0] and mode(home) == 0o2700 and paths.ensure_home() == []


@posix
def test_a_folder_of_others_is_closed_to_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, user = tmp_path / "shared", tmp_path / "people" / "user"
    user.mkdir(parents=True)
    shared.mkdir()
    monkeypatch.setenv("HOME", str(user))
    for folder, before in ((shared, 0o1777), (user, 0o755), (user.parent, 0o755)):
        folder.chmod(before)
        monkeypatch.setenv("GA_HOME", str(folder))
        assert paths.ensure_home() == [] and mode(folder) == before
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)  # it belongs to somebody else
    other, file = tmp_path / "other", write(tmp_path / "other" / "config.toml", TOML.format("a"))
    other.chmod(0o755)
    file.chmod(0o644)
    monkeypatch.setenv("GA_HOME", str(other))
    assert paths.ensure_home() == [] and mode(other) == 0o755
    found = load(other)
    assert mode(file) == 0o644 and names(found) == ["a"] and found.told == []
    assert len(found.problems) == 1 and "can be read by others" in found.problems[0]


@posix
def test_a_file_that_cannot_be_made_private_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "config.toml", TOML.format("a"))
    file.chmod(0o644)

    def refuse(self: Path, mode: int) -> None:
        raise PermissionError(errno.EROFS, "Read-only file system", str(self))

    monkeypatch.setattr(Path, "chmod", refuse)
    found = load(tmp_path)
    assert names(found) == ["a"] and "can be read by others" in found.problems[0] and str(file) in found.problems[0]


@posix
def test_a_file_elsewhere_is_changed_or_passed_over(tmp_path: Path) -> None:
    home, dotfiles, beside = tmp_path / "home", tmp_path / "dotfiles", tmp_path / "checkout"
    home.mkdir()
    linked = write(dotfiles / "config.toml", TOML.format("linked"))
    (home / "config.toml").symlink_to(linked)
    given, old = (
        write(tmp_path / "given.toml", TOML.format("given-1234")),
        write(beside / "mykey.py", PY.format("beside")),
    )
    keyless = write(beside / "mykey.json", '{"oai": {"apibase": "http://127.0.0.1:9"}}')
    files = (linked, given, old, keyless)
    for file in files:
        file.chmod(0o644)
    found = load(home, config_file=given, beside=beside)
    assert [mode(f) for f in files] == [0o644] * 4 and found.told == []
    assert sorted(p.split(" ")[0] for p in found.problems) == sorted(map(str, (given, home / "config.toml", old)))


@pytest.mark.parametrize(
    "address",
    ["http://api.example.com", "http://10.0.0.7:11434/v1", "http://127.0.0.1.evil.test", "http://127.0.0.1@evil.test/v1", "HTTP://x.test",
     "http://localhost.evil.test", "http://127.999.0.1", "http://[2001:db8::1]/", "http://0.0.0.0:1", "http://127.1:80", "http://2130706433/",
     "http://user:pass@x.test", "http://127.0.0.1\\@evil.test", "http://evil.test\\.127.0.0.1"],
)  # fmt: skip
def test_a_key_goes_unprotected_to_another_machine(tmp_path: Path, address: str) -> None:
    bad = TOML.format("bad").replace('"https://x.test"', repr(address))
    write(tmp_path / "config.toml", bad + TOML.format("good"))
    found = load(tmp_path)
    assert names(found) == ["good"] and len(found.problems) == 1 and "config.toml:1" in found.problems[0]
    assert "https" in found.problems[0] and "pass@" not in found.problems[0]
    with pytest.raises(ConfigError, match="https"):
        config.model_from({"api_key": "k", "base_url": address}, "native_oai", {})
    assert load(tmp_path / "none", {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": address}).models == []


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:1234/v1",
        "http://localhost:11434",
        "http://[::1]:8080",
        "http://127.3.2.1",
        "https://10.0.0.7/v1",
    ],
)
def test_an_address_that_is_safe_is_refused(tmp_path: Path, address: str) -> None:
    write(
        tmp_path / "config.toml",
        TOML.format("a").replace("https://x.test", address) + 'proxy = "http://proxy.test:3128"\n',
    )
    found = load(tmp_path)
    assert names(found) == ["a"] and found.problems == []


def test_an_unchecked_certificate_is_not_told(tmp_path: Path) -> None:
    local = TOML.format("b").replace("https://x.test", "https://127.0.0.1:9")
    write(tmp_path / "config.toml", TOML.format("a") + "verify = false\n" + local + "verify = false\n")
    found = load(tmp_path)
    assert names(found) == ["a", "b"] and len(found.problems) == 1
    assert "verify" in found.problems[0] and "x.test" in found.problems[0] and "config.toml:1" in found.problems[0]


def test_a_key_that_no_model_uses_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # C149
    write(
        tmp_path / "config.toml",
        TOML.format("a").replace("k-a", "used-key-1234") + "[telegram]\ntoken = 'tok-12345678'\n",
    )
    write(
        tmp_path / "mykey.py",
        "part = 'computed-'\nnative_oai_config = {'apikey': part + 'key-5678'}\nother = {'db_password': 'pass-word-1'}\n",
    )
    write(
        tmp_path / "mykey.json",
        '{"oai": {"apikey": "js\\"on-key-1234", "proxy": "http://u:proxy-pass@h.test"}, "max_tokens": "not-a-secret"}',
    )
    monkeypatch.setenv("HTTPS_PROXY", "http://me:env-pass%2F1@proxy.test:3128")
    found = load(tmp_path)
    assert {"used-key-1234", "tok-12345678"} <= found.secrets(), "scripts don't see these in their environment"
    hidden = found.hidden()
    assert {
        "computed-key-5678",
        "pass-word-1",
        'js"on-key-1234',
        "env-pass%2F1",
        "env-pass/1",
        "me:env-pass%2F1",
    } <= hidden
    assert "me:env-pass%2F1" not in found.secrets(), "the proxy stays in the environment of scripts"
    assert not {"not-a-secret", "https://x.test", "m", "a", "anthropic"} & hidden


def test_a_placeholder_is_hidden_as_if_it_were_a_key(tmp_path: Path) -> None:  # C151
    write(
        tmp_path / "mykey.py",
        "oai_config = {'apikey': '<your key here>', 'token': 'env:SOME_VARIABLE'}\napi_key = 'sk-…'\n",
    )
    assert load(tmp_path).hidden() - set(config._resolved.values()) == set()


def test_a_file_that_was_named_and_has_no_usable_model_asks_another(tmp_path: Path) -> None:
    write(tmp_path / "config.toml", TOML.format("home"))
    named = write(tmp_path / "named.toml", "[[llm]]\napi = 'chat'\nmodel = 'm'\n")
    with pytest.raises(ConfigError, match=r"no model of .*named\.toml can be used: skipped"):
        load(tmp_path, config_file=named)
    write(named, "[limits]\nmax_turns = 3\n")  # names none: those of the home are meant
    assert names(load(tmp_path, config_file=named)) == names(load(tmp_path))
