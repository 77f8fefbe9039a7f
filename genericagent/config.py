"""Configuration from config.toml, mykey.py, mykey.json and the environment into typed settings (docs/CONFIG.md)."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from .errors import ConfigError
from .paths import expand, keep_private, others_can_read

# What a bare session talks to when neither its settings nor the environment say so.
DEFAULTS = {
    "anthropic": {"base_url": "https://api.anthropic.com", "model": "claude-sonnet-4-5"},
    "openai": {"base_url": "https://api.openai.com/v1", "model": "gpt-5-mini"},
}
KINDS = ("claude", "oai", "native_claude", "native_oai", "mixin")
APIS = {"anthropic": "native_claude", "chat": "native_oai", "responses": "native_oai"}
ALIASES = {
    "apikey": "api_key",
    "apibase": "base_url",
    "api_base": "base_url",
    "timeout": "connect_timeout",
    "llm_nos": "members",
    "models": "members",
}
IGNORED = {
    "base_delay",
    "type",
    "kind",
    "api",
    "api_mode",
    "native",
    "extra_sys_prompt_file",
}  # read elsewhere, or by the original only
_WHERE_TO = ("base_url", "apibase", "api_base", "proxy")  # a typo here may send a key to somebody else
_LEAST = {
    "context_win": 2000, "max_tokens": 1, "max_retries": 0, "max_retry_after": 0, "connect_timeout": 0.1, "read_timeout": 0.1,
    "idle_timeout": 0.1, "spring_back": 0, "trim_keep_prefix": 0,
}  # fmt: skip
SECTIONS = ("limits", "reflect", "safety", "telegram", "ui", "web")
CHOICES = {"sandbox": ("off", "auto", "require"), "net": ("on", "off"), "bell": ("all", "needs", "off")}
PRICE_KEYS = ("input", "output", "cache_read", "cache_write")
_PLAIN = {
    "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "list[str]": "a list of texts",
    "list[int]": "a list of whole numbers", "list[str | int]": "a list of names or numbers", "bool | str": "true, false or a file",
}  # fmt: skip
_KEY_NAME = re.compile(r"key|kye|token$|secret|passw|credential", re.I)
# A key in a file that may be broken: what stands in quotes behind such a name, and words that begin as keys do
_KEY_TEXT = re.compile(
    r"""(?:key|kye|token|secret|passw\w*|credentials?)["']?\s*[:=]\s*(?:"([^"\n]+)"|'([^'\n]+)')"""
    r"""|\b((?:sk|pk|xai|gsk|hf|nvapi|pplx|ghp|github_pat|AIza)[-_]?[\w-]{16,})""",
    re.I,
)
COMMAND_TIMEOUT = 20  # seconds for a `cmd:` key


@dataclass(repr=False, eq=False)  # no repr: it would show the key
class Model:
    """One entry of the list of models; docs/CONFIG.md says what each key means. Times in seconds."""

    kind: str
    api: str
    name: str
    model: str = ""
    base_url: str = ""
    api_key: str = ""
    native: bool = True
    context_win: int = 30_000
    max_tokens: int | None = None
    temperature: float | None = None
    reasoning_effort: str | None = None
    thinking_type: str | None = None
    thinking_budget_tokens: int | None = None
    service_tier: str | None = None
    stream: bool = True
    max_retries: int = 3
    max_retry_after: float = 60.0
    connect_timeout: float = 10.0
    read_timeout: float = 180.0
    idle_timeout: float = 90.0
    proxy: str | None = None
    verify: bool | str = True
    extra_sys_prompt: str = ""
    omit_thinking: bool = False
    trim_keep_prefix: int = 0
    images: bool | None = None
    members: list[str | int] = field(default_factory=list)
    spring_back: float = 300.0
    source: str = ""
    number: int = -1  # its place among the entries of its file, broken ones counted: what a mixin means by a number

    @property
    def label(self) -> str:
        """Its name, and the provider's name for it where that is another."""
        return self.name if self.name == self.model or not self.model else f"{self.name} ({self.model})"

    def resolve_key(self) -> str:
        """The key itself; `env:NAME` and `cmd:…` are looked up now, once. Raises ConfigError."""
        return resolve_secret(self.api_key, f"{self.source}: api_key of {self.name}")


@dataclass(repr=False, eq=False)
class Limits:
    """Caps of a run: turns, dollars, seconds, dollars a day. None is no cap."""

    max_turns: int = 100
    max_cost: float | None = None
    max_time: float | None = None
    daily_cost: float | None = None


@dataclass(repr=False, eq=False)
class Reflect:
    """Of watchers: dollars a day, of all of them together."""

    daily_cost: float = 2.0


@dataclass(repr=False, eq=False)
class Safety:
    """Walls and questions. None: the default, which for `sandbox` depends on who started the task."""

    sandbox: str | None = None
    net: str | None = None
    memory_mb: int | None = None
    file_mb: int | None = None
    cpu_seconds: int | None = None
    env_keep: list[str] = field(default_factory=list)
    allow: list[str] = field(default_factory=list)
    ask: list[str] = field(default_factory=list)
    deny: list[str] = field(default_factory=list)


@dataclass(repr=False, eq=False)
class Telegram:
    """Times in seconds. `poll`: how long a look for messages waits; `edit`: between two edits of a message."""

    token: str = ""
    allowed_users: list[int] = field(default_factory=list)
    allowed_chats: list[int] = field(default_factory=list)
    base_url: str = "https://api.telegram.org"
    proxy: str | None = None
    max_file_mb: float = 20.0
    poll: float = 30.0
    edit: float = 2.0
    album: float = 1.0
    approval: float = 300.0
    retry: float = 1.0


@dataclass(repr=False, eq=False)
class Ui:
    language: str | None = None
    title: bool = True
    bell: str = "all"


@dataclass(repr=False, eq=False)
class Web:
    """The page of `ga web`. Port 0: a free one, another at each start."""

    port: int = 18770


@dataclass(repr=False, eq=False)
class Config:
    """Everything configured. `problems` are lines for the user about what was skipped."""

    models: list[Model] = field(default_factory=list)
    limits: Limits = field(default_factory=Limits)
    reflect: Reflect = field(default_factory=Reflect)
    safety: Safety = field(default_factory=Safety)
    telegram: Telegram = field(default_factory=Telegram)
    ui: Ui = field(default_factory=Ui)
    web: Web = field(default_factory=Web)
    prices: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    seen: dict[Path, tuple[int, int] | None] = field(default_factory=dict)  # file → (mtime, size), None = not there

    file: Path | None = None  # the one that --config named
    found: set[str] = field(default_factory=set)  # what stands where keys do in those files, also in broken entries
    told: list[str] = field(default_factory=list)  # lines for the user about what was put right

    def stale(self) -> bool:
        """Whether a file that was consulted has changed, come or gone since."""
        return any(_stamp(path) != stamp for path, stamp in self.seen.items())

    def secrets(self) -> set[str]:
        """Every key as a value: literal ones, and those looked up so far or found in the environment."""
        found = {self.telegram.token, *(m.api_key for m in self.models)}
        out = set(_resolved.values())
        for value in found:
            if value.startswith("env:"):
                out.add(os.environ.get(value[4:], ""))
            elif not value.startswith("cmd:"):
                out.add(value)
        return {v for v in out if len(v) >= 6}

    def hidden(self) -> set[str]:
        """All that no log, session or screen may show: the keys, those of entries that are not used, and the
        credentials in the addresses of proxies and providers."""
        addresses = [a for m in self.models for a in (m.base_url, m.proxy) if a]
        addresses += [a for a in (self.telegram.base_url, self.telegram.proxy) if a]
        addresses += [v for k, v in os.environ.items() if k.lower() in ("http_proxy", "https_proxy", "all_proxy")]
        variables = {os.environ.get(f"{family}_API_KEY", "").strip() for family in ("ANTHROPIC", "OPENAI")}
        return (self.secrets() | self.found | variables | {c for a in addresses for c in _credentials(a)}) - {""}


_resolved: dict[str, str] = {}


def known_keys() -> int:
    """How many keys of `cmd:` were looked up so far: they are known only then."""
    return len(_resolved)


def resolve_secret(given: str, what: str, timeout: float = COMMAND_TIMEOUT) -> str:
    """A secret as it is, from `env:NAME`, or from the output of `cmd:…` (asked once, `timeout` in seconds). Raises
    ConfigError without it."""
    if given.startswith("env:"):
        value = os.environ.get(given[4:], "").strip()
        if not value:
            raise ConfigError(f"{what}: the environment variable {given[4:]} is not set")
        return value
    if not given.startswith("cmd:"):
        return given
    if given not in _resolved:
        import subprocess

        try:
            done = subprocess.run(
                given[4:], shell=True, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            raise ConfigError(f"{what}: the command did not end within {timeout:.0f} s") from None
        if done.returncode or not done.stdout.strip():
            raise ConfigError(f"{what}: the command gave no key (exit code {done.returncode})")
        _resolved[given] = done.stdout.strip().splitlines()[0]
    return _resolved[given]


def is_loopback(url: str) -> bool:
    """Whether the address is on this machine: localhost, ::1, 127.0.0.0/8. Nothing is looked up."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    byte = r"(25[0-5]|2[0-4]\d|1?\d?\d)"
    return host in ("localhost", "::1") or bool(re.fullmatch(rf"127(\.{byte}){{3}}", host))


def _credentials(url: str) -> set[str]:
    """User name with password, password, and the longer values of the query of an address."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return set()
    login, _, _ = parts.netloc.rpartition("@")
    password = login.partition(":")[2]
    values = [pair.partition("=")[2] for pair in parts.query.split("&")]
    given = [*([login] if password else []), password, *(v for v in values if len(v) >= 16)]
    return {form for text in given for form in (text, unquote(text))} - {""}


def _keys_in(text: str) -> set[str]:
    """What may be a key in the text of a configuration file, whether or not it can be read."""
    return _real(value for groups in _KEY_TEXT.findall(text) for value in groups)


def _keys_of(value: Any, name: str = "", depth: int = 0) -> set[str]:
    """The same in what was read."""
    if isinstance(value, str):
        return _real([value]) if _KEY_NAME.search(name) else set()
    if isinstance(value, Mapping) and depth < 8:
        return set().union(*(_keys_of(v, str(k), depth + 1) for k, v in value.items()))
    return set()


def _real(values: Iterable[str]) -> set[str]:
    plain = (v.strip() for v in values if not v.startswith(("env:", "cmd:")))
    return {v for v in plain if not re.search(r"\s|[<>{}…]", v)}  # a sentence or a placeholder is no key


def model_from(
    cfg: Mapping[str, Any],
    kind: str,
    environ: Mapping[str, str],
    *,
    name: str = "",
    source: str = "settings",
    note: Callable[[str], None] = lambda problem: None,
) -> Model:
    """A Model from loose settings. What is missing comes from the environment, then from DEFAULTS.

    `note` gets a line for every key that is unknown. Raises ConfigError for a value that cannot be used.
    """
    given = {ALIASES.get(k, k): v for k, v in cfg.items() if v is not None}
    claude = kind.endswith("claude")
    family = "anthropic" if claude else "openai"
    upper = family.upper()
    mode = given.get("api") or given.get("api_mode") or ("anthropic" if claude else "chat")
    api = {"chat_completions": "chat"}.get(mode, mode)
    if kind != "mixin" and api not in APIS:
        key, choices = ("api", list(APIS)) if "api" in given else ("api_mode", ["chat_completions", "responses"])
        raise ConfigError(f"{source}: {key} must be one of {', '.join(choices)}, not {mode!r}")
    model = Model(kind=kind, api=api, name="", native=kind.startswith("native"), source=source)
    kinds = {f.name: f.type for f in fields(Model)}
    for key, value in given.items():
        if key in IGNORED:
            continue
        if key not in kinds or key in ("kind", "source", "number"):
            near = _nearest(key, kinds)
            if any(f"{wanted!r}" in near for wanted in _WHERE_TO):
                raise ConfigError(
                    f"{source}: unknown key {key!r}{near}; without it the key might go to the wrong address"
                )
            note(f"{source}: unknown key {key!r}{near}")
            continue
        setattr(model, key, typed(value, str(kinds[key]), f"{source}: {key}"))
    if "extra_sys_prompt_file" in given:
        model.extra_sys_prompt += _prompt_file(given["extra_sys_prompt_file"], source)
    if kind == "mixin":
        model.name = model.name or name or "mixin"
        return model
    ours = DEFAULTS[family]
    model.base_url = (model.base_url or environ.get(f"{upper}_BASE_URL") or ours["base_url"]).rstrip("/")
    model.model = model.model or environ.get(f"{upper}_MODEL") or ours["model"]
    model.api_key = (model.api_key or environ.get(f"{upper}_API_KEY") or "").strip()
    model.name = model.name or name or model.model
    _check(model, source)
    if model.verify is False and not is_loopback(model.base_url):
        note(f"{source}: verify = false: whoever is on the way to {urlsplit(model.base_url).hostname} can read the key")
    return model


def _check(model: Model, source: str) -> None:
    address = urlsplit(model.base_url)
    if address.scheme not in ("http", "https") or not address.hostname or re.search(r"[\s\\]", model.base_url):
        raise ConfigError(
            f"{source}: base_url must begin with https:// (or http:// on this machine) and name a host, not {_told(model.base_url)}"
        )
    if address.scheme == "http" and not is_loopback(model.base_url):
        raise ConfigError(
            f"{source}: http:// is for this machine alone: on the way to {address.hostname} others could read and change all that "
            "is said, and read the key if there is one; use https, or a tunnel to a loopback address (ssh -N -L)"
        )
    if not model.api_key and not is_loopback(model.base_url):
        raise ConfigError(f"{source}: no api_key")
    if any(ord(c) < 33 or ord(c) > 126 for c in model.api_key) and not model.api_key.startswith(("cmd:", "env:")):
        raise ConfigError(f"{source}: api_key holds characters that no key has (is it a placeholder?)")
    check_numbers(model, source)


def check_numbers(model: Model, source: str) -> None:
    """Raises ConfigError for a number that makes no sense."""
    for name, least in _LEAST.items():
        value = getattr(model, name)
        if value is not None and not least <= value <= 1e9:
            raise ConfigError(f"{source}: {name} must be at least {least}, not {value}")


def typed(value: Any, kind: str, what: str) -> Any:
    """The value as the annotation `kind` wants it. Raises ConfigError, beginning with `what`."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{what} must be a number, not {value!r}")
    if kind.startswith("bool | str") and isinstance(value, (bool, str)):
        return value
    if kind.startswith("bool"):
        if isinstance(value, bool):
            return value
    elif kind.startswith("int"):
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value):
            return int(value)
    elif kind.startswith("float"):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    elif kind.startswith("list"):
        if isinstance(value, (list, tuple)):
            return [typed(_number(v), "int", what) if "list[int]" in kind else v for v in value]
    elif isinstance(value, str):
        return value
    wanted = kind.split(" | None")[0]
    shown = "what it is" if what.endswith(("api_key", "token")) else _told(value)
    raise ConfigError(f"{what} must be {_PLAIN.get(wanted, wanted)}, not {shown}")


def _number(value: Any) -> Any:
    """A whole number that was written as a text."""
    return int(value) if isinstance(value, str) and re.fullmatch(r"\s*-?\d{1,20}\s*", value) else value


def _told(value: Any) -> str:
    """A wrong value for an error line, unless it may be a key in the wrong place."""
    return "what it is" if isinstance(value, str) and re.fullmatch(r"[\w+/=~.-]{20,}", value) else repr(value)


def _nearest(key: str, known: Mapping[str, Any]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(key, [*known, *ALIASES], 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _prompt_file(given: Any, source: str) -> str:
    try:
        return expand(str(given)).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}: extra_sys_prompt_file cannot be read: {error}") from None


def load(
    home: Path, *, config_file: Path | None = None, beside: Path | None = None, environ: Mapping[str, str]
) -> Config:
    """Read everything. The models come from the first source that names any; other settings merge key by key, the
    first source winning. Files of the home that others could read are made private. Raises ConfigError for a file that
    cannot be read as what it is, with its line. No line it gives or raises shows a key."""
    from .safety.redact import Redactor

    config = Config(file=config_file)
    if config_file is not None and not config_file.exists():
        raise ConfigError(f"the configuration file {config_file} does not exist")
    try:
        _load(config, home, beside, environ)
    except ConfigError as error:
        raise ConfigError(Redactor(config.hidden())(str(error))) from None
    config.problems = list(map(Redactor(config.hidden()), config.problems))
    return config


def _load(config: Config, home: Path, beside: Path | None, environ: Mapping[str, str]) -> None:
    places = [config.file] if config.file else []
    places += [home / "config.toml"]
    for folder in (home, *([beside] if beside else [])):
        places += [folder / "mykey.py", folder / "mykey.json"]
    sections: dict[str, dict[str, tuple[Any, Path]]] = {}
    for path in places:
        config.seen[path] = _stamp(path)
        if config.seen[path] is None:
            continue
        known = len(config.found)
        entries, others = _read_source(path, config.problems.append, config.found)
        if path.parent == home:
            config.told += keep_private(path, 0o600, config.problems.append)
        elif len(config.found) > known:
            config.problems += others_can_read(path)
        for section, table in others.items():
            for key, value in table.items():
                sections.setdefault(section, {}).setdefault(key, (value, path))
        if not config.models:
            _add_models(config, entries, environ)
        if path == config.file and entries and not config.models:  # whoever names a file means its models
            raise ConfigError(f"no model of {path} can be used: {'; '.join(config.problems)}")
    if not config.models:
        _add_environment(config, environ)
    _fill(config, sections)


Entry = tuple[str, str, Mapping[str, Any], str]  # name, kind, settings, where it stands


def _read_source(
    path: Path, note: Callable[[str], None], keys: set[str]
) -> tuple[list[Entry], dict[str, dict[str, Any]]]:
    """(model entries, other sections) of one file; what may be a key in it joins `keys`, also when it is broken."""
    if not path.is_file():
        raise ConfigError(f"cannot read {path}: it is no file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    keys |= _keys_in(text)
    if path.suffix == ".toml":
        entries, others = _from_toml(path, text)
        keys |= set().union(*(_keys_of(settings) for _, _, settings, _ in entries), _keys_of(others))
        return entries, others
    values = _from_json(path, text) if path.suffix == ".json" else _from_python(path, text)
    keys |= _keys_of(values)
    entries = []
    for name, value in values.items():
        kind = _kind_of(name)
        if kind and isinstance(value, Mapping):
            entries.append((name, kind, value, f"{path}: {name}"))
        elif isinstance(value, Mapping) and not value.keys().isdisjoint(("apikey", "api_key")):
            note(
                f"skipped: {path}: the name {name!r} doesn't say which session it is for (claude, oai, native_…, mixin)"
            )
    telegram = {
        new: values[old]
        for old, new in (
            ("tg_bot_token", "token"),
            ("tg_allowed_users", "allowed_users"),
            ("tg_allowed_chats", "allowed_chats"),
        )
        if old in values
    }
    return entries, {"telegram": telegram} if telegram else {}


def _kind_of(name: str) -> str | None:
    """The kind of a mykey variable by its name (docs/CONFIG.md), None for other variables."""
    low = name.lower()
    if "mixin" in low:
        return "mixin"
    native = "native_" if "native" in low else ""
    if "claude" in low:
        return f"{native}claude"
    return f"{native}oai" if "oai" in low else None


def _from_toml(path: Path, text: str) -> tuple[list[Entry], dict[str, dict[str, Any]]]:
    import tomllib

    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deep") from None
    at = [i for i, line in enumerate(text.splitlines(), 1) if line.strip().replace(" ", "").startswith("[[llm]]")]
    tables = data.pop("llm", [])
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise ConfigError(f"{path}: models are written as [[llm]] tables, with two brackets")
    entries = []
    for number, table in enumerate(tables):
        where = f"{path}:{at[number]}" if number < len(at) else f"{path}: [[llm]] {number + 1}"
        api = table.get("api")
        kind = table.get("type") or table.get("kind") or APIS.get(str(api)) or "?"
        if table.get("members"):
            kind = "mixin"
        elif kind == "?":
            kind = (
                "native_claude"
                if "anthropic" in str(table.get("base_url", "")) or "claude" in str(table.get("model", ""))
                else "native_oai"
            )
        entries.append((str(table.get("name") or ""), kind, table, where))
    loose = [k for k, v in data.items() if not isinstance(v, dict)]
    if loose:
        raise ConfigError(f"{path}: {loose[0]!r} stands outside of a section")
    return entries, data


def _from_json(path: Path, text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except RecursionError:
        raise ConfigError(f"{path}: nested too deep") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: must hold a JSON object")
    return data


def _from_python(path: Path, text: str) -> dict[str, Any]:
    """The user's own mykey.py is run, as it always was: it is as trusted as the program itself."""
    space: dict[str, Any] = {"__file__": str(path), "__name__": "mykey"}
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout belongs to the answer
            exec(compile(text, str(path), "exec"), space)
    except SyntaxError as error:
        raise ConfigError(f"{path}:{error.lineno}: {error.msg}") from None
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        import traceback

        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        raise ConfigError(f"{path}:{lines[-1] if lines else '?'}: {type(error).__name__}: {error}") from None
    return {k: v for k, v in space.items() if not k.startswith("_")}


def _add_models(config: Config, entries: list[Entry], environ: Mapping[str, str]) -> None:
    """Good entries become models; a broken one is named in the problems and skipped."""
    for number, (name, kind, settings, where) in enumerate(entries):
        try:
            if kind not in KINDS:
                raise ConfigError(f"{where}: unknown type {kind!r}; there are {', '.join(KINDS)}")
            model = model_from(settings, kind, {}, name=name, source=where, note=config.problems.append)
            model.number = number
            variable = model.api_key.removeprefix("env:") if model.api_key.startswith("env:") else ""
            if variable and not environ.get(variable, "").strip():
                raise ConfigError(f"{where}: api_key: the environment variable {variable} is not set")
        except ConfigError as error:
            config.problems.append(f"skipped: {error}")
            continue
        except (TypeError, ValueError, AttributeError, OverflowError, RuntimeError) as error:
            config.problems.append(f"skipped: {where}: {type(error).__name__}: {error}")
            continue
        config.models.append(model)


def _add_environment(config: Config, environ: Mapping[str, str]) -> None:
    for family, kind in (("ANTHROPIC", "native_claude"), ("OPENAI", "native_oai")):
        if environ.get(f"{family}_API_KEY", "").strip():
            try:
                config.models.append(model_from({}, kind, environ, source="environment"))
            except ConfigError as error:
                config.problems.append(f"skipped: {error}")


def _fill(config: Config, sections: Mapping[str, Mapping[str, tuple[Any, Path]]]) -> None:
    for section, table in sections.items():
        if section == "prices":
            _add_prices(config, table)
            continue
        target = getattr(config, section, None) if section in SECTIONS else None
        if target is None and "'safety'" in _nearest(section, dict.fromkeys(SECTIONS)):
            raise ConfigError(f"{next(iter(table.values()))[1]}: unknown section [{section}] (did you mean [safety]?)")
        if target is None:
            _, path = next(iter(table.values()))
            config.problems.append(f"{path}: unknown section [{section}]{_nearest(section, dict.fromkeys(SECTIONS))}")
            continue
        kinds = {f.name: f.type for f in fields(target)}
        for key, (value, path) in table.items():
            where = f"{path}: [{section}] {key}"
            if key not in kinds and section == "safety":
                raise ConfigError(f"{where}: unknown key{_nearest(key, kinds)}; what was meant to protect would not")
            if key not in kinds:
                config.problems.append(f"{path}: [{section}]: unknown key {key!r}{_nearest(key, kinds)}")
                continue
            setattr(target, key, typed(value, str(kinds[key]), where))
            if key == "port" and not 0 <= value <= 65535:
                raise ConfigError(f"{where} must be 0 to 65535, not {value!r}")
            if section in ("limits", "reflect") and not value > 0:
                raise ConfigError(f"{where} must be more than 0, not {value!r}")
            if key in CHOICES and value not in CHOICES[key]:
                raise ConfigError(f"{where} must be one of {', '.join(CHOICES[key])}, not {value!r}")
            if key in ("memory_mb", "file_mb", "cpu_seconds") and not value > 0:
                raise ConfigError(f"{where} must be more than 0, not {value!r}")
            if section == "safety" and not all(isinstance(v, str) for v in (value if isinstance(value, list) else ())):
                raise ConfigError(f"{where} must be a list of texts")


def _add_prices(config: Config, table: Mapping[str, tuple[Any, Path]]) -> None:
    """Good prices count; one without both its numbers is named and left out."""
    for name, (price, path) in table.items():
        where = f"{path}: [prices.{json.dumps(name)}]"
        try:
            if not isinstance(price, Mapping):
                raise ConfigError(f"{where} must be a table with input and output")
            for key, value in price.items():
                if key not in PRICE_KEYS:
                    raise ConfigError(f"{where}: unknown key {key!r}{_nearest(key, dict.fromkeys(PRICE_KEYS))}")
                if typed(value, "float", f"{where} {key}") < 0:
                    raise ConfigError(f"{where} {key} must not be negative")
            if "input" not in price or "output" not in price:
                raise ConfigError(f"{where} needs both input and output, dollars per million tokens")
        except ConfigError as error:
            config.problems.append(f"skipped: {error}")
            continue
        config.prices[name] = dict(price)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None  # not there, or not readable: read_text says which when it matters
    return stat.st_mtime_ns, stat.st_size
