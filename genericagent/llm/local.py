"""Model servers on this machine that answer. They are offered, never used unasked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .listing import names_in
from .transport import get_json

PATIENCE = 0.5  # seconds; a server on this machine that lists its models more slowly isn't there


@dataclass(frozen=True)
class LocalServer:
    """An OpenAI-compatible server and the names of its models."""

    name: str
    base_url: str
    models: list[str]


def find_local(environ: Mapping[str, str]) -> list[LocalServer]:
    """Ollama (at $OLLAMA_HOST, else port 11434) and LM Studio (port 1234), those that answer and have a model."""
    host = environ.get("OLLAMA_HOST", "").removeprefix("http://").rstrip("/") or "127.0.0.1:11434"
    ollama = host.replace("0.0.0.0", "127.0.0.1") + ("" if ":" in host else ":11434")
    found = []
    for name, address in (("Ollama", ollama), ("LM Studio", "127.0.0.1:1234")):
        base_url = f"http://{address}/v1"
        models = names_in(get_json(f"{base_url}/models", PATIENCE))
        if models:
            found.append(LocalServer(name, base_url, models))
    return found
