"""The chat without a model: choose a provider, paste the key, choose a model; one call proves it before it is saved.

Plain lines for every terminal. Nothing is written before a model has answered. The terminal echoes nothing meanwhile: a key
may be pasted at any question, also before it is asked. What is typed is shown only where and as long as it can be an answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prompt_toolkit.utils import get_cwidth

from .. import paths, prompts
from ..abort import Abort
from ..config import APIS, DEFAULTS, Config, Model, is_loopback, model_from
from ..errors import ConfigError, GAError, LLMError
from ..llm.listing import list_models
from ..llm.local import find_local
from ..safety.keylike import key_in
from ..safety.redact import Redactor
from ..safety.term import clean, one_line
from ..store import atomic
from .cells import fitted
from .demo import scripted_model
from .trial import try_model

EXPORT = '$env:ANTHROPIC_API_KEY = "…"' if os.name == "nt" else "export ANTHROPIC_API_KEY=…"
PASTE = 0.15  # seconds without a further line that end a paste
PATIENCE = 60.0  # seconds for the call that proves a model
SHOWN = 20  # models of a list at once
# What stands around a key where it is copied from: shells, mykey.py, JSON, a header.
_AROUND = re.compile(
    r"(?:(?:export|set)\s+|\$env:)\w+\s*=\s*(?=.{8})|setx\s+\w+\s+(?=.{8})|[\w.-]*(?:key|token|secret)[\w-]*[\"']?\s*[:=]\s*(?=.{8})"
    r"|authorization\s*:\s*|bearer\s+",
    re.I,
)
_QUOTES = " \t\r\n\"'`“”‘’「」,;\u00a0\u200b\ufeff"


@dataclass
class Choice:
    """A place where models are. `base_url` "": it is asked for; `prefer`: how the model begins that is shown first."""

    label: str
    api: str
    base_url: str = ""
    prefer: str = ""
    models: list[str] = field(default_factory=list)  # known already: no key is asked for


@contextlib.contextmanager
def chosen_model(config: Config) -> Iterator[tuple[str, str | None] | None]:
    """Ask at the terminal. Yields (what the first screen says, a configuration file or None for the usual ones), None
    when the user leaves. Raises KeyboardInterrupt on Ctrl-C, ConfigError or ToolError where nothing can be saved."""
    try:
        with _silent():
            found = _choose(config)
    except KeyboardInterrupt:
        sys.stdout.write("\n")
        raise
    if found == "demo":
        with scripted_model() as demo:
            yield demo
    else:
        yield None if found is None else (found, None)


def _say(key: str, **values: object) -> str:
    return prompts.text("first_run", key, **values)


def _tell(text: str) -> None:
    sys.stdout.write(fitted(f"{text}\n", sys.stdout))
    sys.stdout.flush()


def _choose(config: Config) -> str | None:
    """What the first screen says about the model that was saved; "demo"; None: the user leaves."""
    choices, file = _choices(), paths.home() / "config.toml"
    lines = [_say("offer", number=n, name=one_line(c.label)) for n, c in enumerate(choices, 1)]
    ways = _say("ways", export=EXPORT, file=file, home=paths.home())
    menu = "\n".join([*(one_line(p, 300) for p in config.problems), _say("welcome"), *lines, _say("offer_demo"), ways])
    _tell(menu)
    numbers = [str(n) for n, _ in enumerate(choices, 1)]
    while word := _asked("choose", lambda typed: typed.lower() in ("d", "de", "dem", "demo", *numbers)).lower():
        if word in ("d", "demo"):
            return "demo"
        if word.isdecimal() and 1 <= int(word) <= len(choices):
            entry = _set_up(choices[int(word) - 1], config)
            if entry:
                for warning in save(entry, file):
                    _tell(warning)
                return _say("saved", model=one_line(entry["model"]), file=file)
            _tell(menu)
    return None


def _choices() -> list[Choice]:
    anthropic, openai = DEFAULTS["anthropic"], DEFAULTS["openai"]
    found = [
        Choice("Anthropic", "anthropic", os.environ.get("ANTHROPIC_BASE_URL") or anthropic["base_url"], anthropic["model"]),
        Choice("OpenAI", "responses", os.environ.get("OPENAI_BASE_URL") or openai["base_url"], openai["model"]),
        Choice("OpenRouter", "chat", "https://openrouter.ai/api/v1"),
        Choice("DeepSeek", "chat", "https://api.deepseek.com/v1", "deepseek-chat"),
        Choice(_say("other_chat"), "chat"),
        Choice(_say("other_anthropic"), "anthropic"),
    ]  # fmt: skip
    for server in find_local(os.environ):
        label = _say("local", server=server.name, models=", ".join(server.models[:3]), count=len(server.models))
        found.append(Choice(label, "chat", server.base_url, models=server.models))
    return found


def _set_up(choice: Choice, config: Config) -> dict[str, str] | None:
    """Ask until a call has worked. Returns the entry for config.toml; None: back to the menu."""
    names = choice.models
    only = names[0] if len(names) == 1 else ""  # it was named in the menu
    entry = {"api": choice.api, "base_url": choice.base_url, "model": only, "api_key": ""}
    step = "call" if only else "model" if names else "key" if choice.base_url else "address"
    bad_key = False
    while True:
        try:
            if step == "address":
                if not (word := _asked("address", _may_be_address)):
                    return None
                entry |= {"base_url": clean_address(word), "api_key": ""}  # a key is for the address it was given for
                _model(entry | {"api_key": "unknown"})
                step = "key"
            elif step == "key":
                entry["api_key"] = clean_key(_hidden(_say("key", address=entry["base_url"])))
                again, bad_key = bad_key, False
                if entry["api_key"] or (is_loopback(entry["base_url"]) and not again):
                    step = "list"
                elif not again or not (step := _other_way("list")):
                    return None
            elif step == "list":
                _tell(_say("listing"))
                names = []
                names, step = list_models(_model(entry), Abort()), "model"
            elif step == "model":
                entry["model"] = _pick(
                    sorted(names, key=lambda name: not choice.prefer or not name.startswith(choice.prefer))
                )
                if not entry["model"]:
                    return None
                step = "call"
            else:
                _tell(_say("calling", model=one_line(entry["model"])))
                trial = try_model(_model(entry), config, PATIENCE)
                cost = prompts.say("cost_unknown") if trial.cost is None else f"${trial.cost:.6f}"
                _tell(_say("works", seconds=f"{trial.seconds:.1f}", cost=cost))
                return entry
        except GAError as error:
            _tell(_failed(error, entry))
            bad_key = step == "key" or (isinstance(error, LLMError) and error.status in (401, 403))
            step = "key" if bad_key else _other_way(step)
            if not step:
                return None


def _other_way(step: str) -> str:
    """The step that the user wants next, `step` again for "r"; "": back to the beginning."""
    steps = {"k": "key", "a": "address", "m": "model", "r": step, "": ""}
    while (word := _asked("what_now", lambda typed: typed.lower() in steps).lower()) not in steps:
        pass
    return steps[word]


def _failed(error: GAError, entry: dict[str, str]) -> str:
    """What went wrong, in one line without the key, and what it most likely means."""
    hidden = Config(models=[Model("", "", "", base_url=entry["base_url"], api_key=entry["api_key"])]).hidden()
    status = error.status if isinstance(error, LLMError) else 0
    lost = "no_server" if is_loopback(entry["base_url"]) else "unreachable"
    nothing = "no_model" if entry["model"] else "not_found"
    if "check base_url" in str(error):  # something is there, and it is no model
        lost = "not_found"
    hint = {401: "refused", 403: "refused", 404: nothing, None: lost}.get(status)
    line = one_line(Redactor(hidden)(str(error)), 400)
    return f"{line}\n{_say(hint)}" if hint else line


def _model(entry: dict[str, str]) -> Model:
    """Raises ConfigError for an address or a key that cannot be used."""
    given = {**entry, "model": entry["model"] or "unknown"}
    return model_from(given, APIS[entry["api"]], {}, source=entry["base_url"])


def _pick(names: Sequence[str]) -> str:
    """A model by its number or a part of its name, any name where there is no list; "" to go back."""
    shown, typed = list(names), ""
    while True:
        for number, name in enumerate(shown[:SHOWN], 1):
            _tell(f"{number:>4}  {one_line(name)}")
        if len(shown) > SHOWN:
            _tell(_say("more", count=len(shown) - SHOWN))
        word = _asked("pick" if names else "type_name", lambda typed: _may_be_name(typed, names))
        if word.isdecimal() and 1 <= int(word) <= len(shown[:SHOWN]):
            return shown[int(word) - 1]
        if not word or not names or word in names or word == typed:
            return word
        found, typed = [name for name in names if word.lower() in name.lower()], word
        shown = found or shown
        if len(found) == 1:
            return found[0]
        if not found:
            _tell(_say("no_such"))


def _like_key(text: str) -> bool:
    """Whether it may be a key: of a vendor's form, or with a long run in which digits and letters are mixed."""
    runs = re.findall(r"[^\W_]{10,}", text)
    return bool(key_in(text)) or any(len(run) > 23 or len(re.findall(r"\d+|[a-z]+|[A-Z]+", run)) > 3 for run in runs)


def _may_be_address(typed: str) -> bool:
    """Whether it is on the way to an address."""
    begun = any(word.startswith(typed) for word in ("https:", "localhost:"))
    return begun or (bool(re.search(r"[.:/]", typed)) and not _like_key(typed))


def _may_be_name(typed: str, names: Sequence[str]) -> bool:
    """Whether a model may be called so: one of the list, where there is one."""
    known = any(typed.lower() in name.lower() for name in names) or (typed.isdecimal() and len(typed) < 5)
    return known if names else not _like_key(typed)


def clean_address(text: str) -> str:
    """An address as it is pasted or typed, with its scheme."""
    address = text.strip(_QUOTES).rstrip("/")
    if "://" in address:
        return address
    return f"{'http' if is_loopback(f'http://{address}') else 'https'}://{address}"


def clean_key(text: str) -> str:
    """The key in what was pasted: without quotes, `export NAME=`, a header's name. Raises ConfigError that says what
    else is in it, never the key."""
    lines = [line for line in clean(text).split("\n") if line.strip(_QUOTES)]
    if len(lines) > 1:
        raise ConfigError(_say("key_lines", count=len(lines)))
    key, before = (lines or [""])[0].strip(_QUOTES), ""
    while key != before:
        before = key
        around = _AROUND.match(key)
        key = key[around.end() if around else 0 :].strip(_QUOTES)
    if key.startswith(("env:", "cmd:")):
        return key
    if re.search(r"\s", key):
        raise ConfigError(_say("key_spaces"))
    if strange := sorted({c for c in key if not "!" <= c <= "~" or c in "<>{}*"}):
        raise ConfigError(_say("key_strange", what=" ".join(strange[:5])))
    return key


def save(entry: dict[str, str], file: Path) -> list[str]:
    """Put the model behind what the file holds; every other byte stays. Returns warnings, for instance that others can
    read it. Raises ConfigError, ToolError, and then the file is as it was."""
    warnings, old = list[str](), b""
    paths.ensure_home()
    if file.exists():
        paths.keep_private(file, 0o600, warnings.append)
        old = file.read_bytes()
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items() if value]
    gap = b"" if not old else b"\n" if old.endswith(b"\n") else b"\n\n"
    new = old + gap + "\n".join(["[[llm]]", *lines, ""]).encode()
    try:
        known = tomllib.loads(new.decode("utf-8-sig"))["llm"][-1]
    except ValueError as error:
        raise ConfigError(_say("cannot_add", file=file, why=error)) from None
    assert known == {key: value for key, value in entry.items() if value}
    atomic.write_bytes(file, new, mode=0o600)
    return warnings


def _asked(key: str, may_show: Callable[[str], bool]) -> str:
    """A line of the user, "" when they leave. What may be a key is not taken here, and was not seen."""
    while True:
        _tell(_say(key))
        word = _line(may_show)
        if not word or may_show(word) or (key in ("pick", "type_name") and not _like_key(word)):
            return word
        _tell(_say("key_seen" if len(word) > 7 else "not_that"))


# the terminal


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """No echo, and each character as it is typed."""
    try:
        import termios
    except ImportError:  # Windows
        yield
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    silent = [*before[:6], [*before[6]]]
    silent[3] &= ~(termios.ECHO | termios.ICANON)
    silent[6][termios.VMIN], silent[6][termios.VTIME] = 1, 0
    silent[6][termios.VSUSP] = b"\0"  # who is put to sleep here would leave it so to the shell
    try:
        termios.tcsetattr(fd, termios.TCSADRAIN, silent)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSAFLUSH, before)  # what came late is thrown away: it may be a piece of the key


def _line(may_show: Callable[[str], bool]) -> str:
    """A line as it is typed, "" at the end of the input. Stars stand for what may not be shown."""
    if os.name == "nt":
        with contextlib.suppress(EOFError):
            return clean(input("> ")).strip()
        return ""
    import select

    fd, data, seen = sys.stdin.fileno(), b"", ""
    while True:
        ended = data.endswith((b"\n", b"\4"))
        if ended or not select.select([fd], [], [], 0)[0]:  # what comes in one piece is looked at in one piece
            typed = edited(data)
            now = "> " + (typed if not typed or may_show(typed.strip()) else "*" * len(typed))
            same = len(os.path.commonprefix([seen, now]))
            back = get_cwidth(seen[same:])
            sys.stdout.write("\b" * back + " " * back + "\b" * back + now[same:] + "\n" * ended)
            sys.stdout.flush()
            seen = now
            if ended:
                return typed.strip()
        data += os.read(fd, 1) or b"\4"


def edited(data: bytes) -> str:
    """What typed bytes make of a line: without escape sequences, and with what Backspace, Ctrl-W and Ctrl-U take away."""
    out = ""
    for sign in re.sub(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|O.)?", "", data.decode("utf-8", "ignore")):
        if sign in "\b\x7f":
            out = out[:-1]
        elif sign in "\x15\x17":
            out = "" if sign == "\x15" else out.rstrip().rpartition(" ")[0]
        elif sign.isprintable():
            out += sign
    return out


def _hidden(prompt: str) -> str:
    """What is typed or pasted, also in several lines, without an echo; "" at the end of the input."""
    try:
        import termios
    except ImportError:  # Windows
        from getpass import getpass

        return getpass(prompt)
    import select

    fd, data = sys.stdin.fileno(), b""
    termios.tcflush(fd, termios.TCIFLUSH)
    sys.stdout.write(fitted(prompt, sys.stdout))
    sys.stdout.flush()
    while not data.endswith((b"\n", b"\4")) or select.select([fd], [], [], PASTE)[0]:
        data += os.read(fd, 65536) or b"\4"
        if data.endswith(b"\4"):
            break
    _tell("")
    return "\n".join(map(edited, data.split(b"\n")))
