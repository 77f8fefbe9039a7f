"""Models for this run alone: `--demo`, the scripted stand-in, served in this process through the ordinary HTTP and SSE
path; or a model server on this machine that the user has chosen."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..prompts import language, say
from ..safety.listener import new_token
from ..scripted import DEMO_MODEL, ScriptedServer, demo_script


@contextlib.contextmanager
def scripted_model() -> Iterator[tuple[str, str]]:
    """Serve the demo's script. Yields (what the first screen says about it, a configuration file that names it)."""
    token = new_token()
    with (
        ScriptedServer(demo_script(language()), token=token) as server,
        only_model(DEMO_MODEL, "anthropic", server.url, token) as file,
    ):
        yield say("demo_label"), file


@contextlib.contextmanager
def only_model(model: str, api: str, base_url: str, api_key: str = "") -> Iterator[str]:
    """A configuration file for this run alone. It is read before every other, so no other model is called."""
    settings = {"name": model, "model": model, "api": api, "base_url": base_url, "api_key": api_key}
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items() if value]
    with tempfile.TemporaryDirectory(prefix="ga-model-") as folder:
        file = Path(folder) / "config.toml"
        file.touch(mode=0o600)
        file.write_text("\n".join(["[[llm]]", *lines, ""]), encoding="utf-8")
        yield str(file)
