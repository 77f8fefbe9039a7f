"""Prompts and messages in the user's language: one folder of files per language, no mixed text.

A language is a folder below assets/prompts/: `<name>.md` is a prompt, `<name>.json` a catalogue of short texts
(flat: key → `str.format` template). Both languages have the same files, keys and placeholders (a test checks it).
"""

from __future__ import annotations

import json
import os
import re
from functools import cache
from typing import Literal

from . import paths
from .errors import ConfigError

Language = Literal["en", "zh"]

_chosen: Language | None = None


def language() -> Language:
    """The language of prompts and messages: set_language(), else $GA_LANG, else the locale, else English."""
    if _chosen is not None:
        return _chosen
    wish = os.environ.get("GA_LANG")
    if not wish:
        wish = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_MESSAGES", "LANG"))), "")
    return "zh" if wish.lower().startswith("zh") else "en"


def set_language(lang: str | None) -> None:
    """Choose the language for this process; None goes back to the environment. Raises ConfigError if unknown."""
    global _chosen
    if lang is not None and lang not in ("en", "zh"):
        raise ConfigError(f"unknown language {lang!r}: use en or zh")
    _chosen = lang  # type: ignore[assignment]  # narrowed by the test above


def catalog(name: str) -> dict[str, str]:
    """The short texts of `assets/prompts/<language>/<name>.json`. Don't change the returned dict: it is shared."""
    return _catalog(language(), name)


def say(key: str, /, **values: object) -> str:
    """The message `key` of the catalogue "messages" with its placeholders filled in. KeyError is a bug."""
    return text("messages", key, **values)


def text(name: str, key: str, /, **values: object) -> str:
    """The same from another catalogue. `{ga}` is how this program is called; what watchers say is read elsewhere."""
    template = catalog(name)[key]
    if "{ga}" in template:
        values["ga"] = paths.this_program(anywhere=name == "watchers")
    return template.format(**values)


def prompt(name: str) -> str:
    """The text of `assets/prompts/<language>/<name>.md`."""
    return _prompt(language(), name)


@cache
def _catalog(lang: str, name: str) -> dict[str, str]:
    texts: dict[str, str] = json.loads(_read(lang, f"{name}.json"))
    docs = paths.shipped("docs").as_posix().replace("{", "{{").replace("}", "}}")  # wherever the program is called
    return {key: re.sub(r"\bdocs/(?=[A-Z]+\.md)", lambda _: f"{docs}/", text) for key, text in texts.items()}


@cache
def _prompt(lang: str, name: str) -> str:
    return _read(lang, f"{name}.md")


def _read(lang: str, file: str) -> str:
    return paths.shipped("assets", "prompts", lang, file).read_text(encoding="utf-8")
