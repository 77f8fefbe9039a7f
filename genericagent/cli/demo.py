"""`--demo`: the scripted stand-in for a model, served in this process through the ordinary HTTP and SSE path."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..prompts import language, say
from ..scripted import DEMO_MODEL, ScriptedServer, demo_script


@contextlib.contextmanager
def scripted_model() -> Iterator[tuple[str, str]]:
    """Serve the demo's script. Yields (what the first screen says about it, a configuration file that names it).

    That file is read before every other, so a configured real model is never called.
    """
    with (
        tempfile.TemporaryDirectory(prefix="ga-demo-") as folder,
        ScriptedServer(demo_script(language())) as server,
    ):
        file = Path(folder) / "config.toml"
        file.write_text(
            f'[[llm]]\nname = "{DEMO_MODEL}"\nmodel = "{DEMO_MODEL}"\napi = "anthropic"\n'
            f'base_url = "{server.url}"\napi_key = "no-key-needed"\n',
            encoding="utf-8",
        )
        yield say("demo_label"), str(file)
