"""The models that an endpoint offers: `GET …/models` (docs.anthropic.com "List Models", platform.openai.com "List models")."""

from __future__ import annotations

import json
import re
from importlib import import_module
from typing import Any

from ..abort import Abort
from ..config import Model
from ..errors import LLMError
from .convert import endpoint
from .transport import Transport

LARGEST = 16 << 20  # bytes of a list; OpenRouter's has about one megabyte
_NO_CHAT = re.compile(
    r"embed|whisper|tts|dall-e|moderation|image|realtime|transcribe|sora|davinci|babbage|rerank", re.I
)


def list_models(model: Model, abort: Abort, *, connect: float = 10.0, first_byte: float = 20.0) -> list[str]:
    """Names of the models at `model.base_url`, newest first where it says when; `model.model` counts for nothing.

    Times in seconds. Raises LLMError when there is no list, ConfigError without a key, Aborted.
    """
    wire = import_module(f"genericagent.llm.{model.api}")
    url = endpoint(model.base_url, "models")
    if model.api == "anthropic":  # its pages hold 20 unless one asks
        url += ("&" if "?" in url else "?") + "limit=1000"
    stream = Transport(model.proxy, model.verify).send(
        url, wire.headers(model.resolve_key()), None, connect=connect, first_byte=first_byte, abort=abort
    )
    body = b""
    try:
        stream.limit(first_byte)
        for piece in stream.chunks():
            body += piece
            if len(body) > LARGEST:
                break
    finally:
        stream.close()
    try:
        names = names_in(json.loads(body))
    except (ValueError, RecursionError):
        names = []
    if not names:
        raise LLMError("the address gives no list of models", status=404)
    return names


def names_in(listing: Any) -> list[str]:
    """The names of models to talk with in such a list; [] when it is none."""
    entries = listing.get("data") if isinstance(listing, dict) else None
    found = [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
    if all(isinstance(e.get("created"), (int, float)) for e in found):
        found.sort(key=lambda e: e["created"], reverse=True)
    names = [e["id"] for e in found if isinstance(e.get("id"), str) and e["id"].isprintable() and e["id"].strip()]
    return [n for n in dict.fromkeys(names) if not _NO_CHAT.search(n)]
