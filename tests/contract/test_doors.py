"""The public names, and what importing the doors does: nothing."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ga

ROOT = Path(__file__).parents[2]
NAMES = {
    "agent_loop": "StepOutcome BaseHandler agent_runner_loop exhaust try_call_generator",
    "ga": "GenericAgentHandler get_global_memory code_run file_read file_patch consume_file smart_format",
    "llmcore": "ClaudeSession OpenAISession NativeClaudeSession NativeOAISession MixinSession ToolClient "
    "NativeToolClient fast_ask RETRYABLE compress_history_tags reload_mykeys resolve_client",
    "agentmain": "GenericAgent GeneraticAgent load_tool_schema get_system_prompt main",
    "simphtml": "get_html execute_js_rich",
    "TMWebDriver": "TMWebDriver",
}


@pytest.mark.parametrize("door", NAMES)
def test_public_names_exist(door: str) -> None:
    module = __import__(door)
    assert [n for n in NAMES[door].split() if not hasattr(module, n)] == []


NINE = {
    "code_run", "file_read", "file_write", "file_patch", "web_scan", "web_execute_js", "ask_user",
    "update_working_checkpoint", "start_long_term_update",
}  # fmt: skip


def test_schema_and_methods_belong_together() -> None:
    schema = json.loads((ROOT / "assets" / "tools_schema.json").read_text(encoding="utf-8"))
    names = {t["function"]["name"] for t in schema}
    methods = set(ga.GenericAgentHandler(parent=None).tool_names())
    assert names == methods and names >= NINE


@pytest.mark.parametrize("door", [*NAMES, "genericagent", "genericagent.cli.args"])
def test_importing_prints_nothing_and_creates_no_file(door: str, tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(ROOT), "GA_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", f"import {door}", "--not-an-option"],
        capture_output=True, cwd=tmp_path, env=env, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert list(tmp_path.iterdir()) == []


def test_faces_are_not_imported_by_the_core() -> None:
    probe = "import agentmain, genericagent.cli.task_mode, sys; print([m for m in ('rich', 'prompt_toolkit', 'asyncio', 'websockets') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


# Who may know whom: a room imports from the lines above its own, never from its own line or one below.
LAYERS = [
    "errors tags plugins __version__", "abort extras paths", "prompts store", "safety", "config display schedule", "llm browser",
    "memory project_notes TMWebDriver simphtml", "tools", "agent_loop control llmcore", "ga", "agentmain", "scripted",
    "cli", "faces", "frontends reflect",
]  # fmt: skip
LEVEL = {room: level for level, line in enumerate(LAYERS) for room in line.split()}
UPWARDS = {("agentmain.py", "cli")}  # main() hands over to the command line


def imports(file: Path) -> Iterator[str]:
    """The rooms of ours that a file imports, wherever in it, but not for its types alone."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    typing = {
        id(inner)
        for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }  # fmt: skip
    for node in ast.walk(tree):
        if id(node) in typing:
            continue
        if isinstance(node, ast.ImportFrom):
            above = list(file.relative_to(ROOT).parts[: -node.level]) if node.level else []
            names = [[*above, *filter(None, (node.module or "").split(".")), alias.name] for alias in node.names]
        else:
            names = [alias.name.split(".") for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            room = name[1] if name[0] == "genericagent" and len(name) > 1 else name[0]
            if room != "genericagent" and (name[0] == "genericagent" or room in LEVEL):
                yield room


def files() -> list[Path]:
    return [
        path
        for where in ("*.py", "genericagent/**/*.py", "frontends/*.py", "plugins/*.py", "reflect/*.py")
        for path in ROOT.glob(where)
    ]


@pytest.mark.slow
def test_rooms_import_only_downwards() -> None:
    faults, seen = [], 0
    for file in files():
        parts = file.relative_to(ROOT).parts
        inside = parts[0] == "genericagent"
        own = (parts[1] if inside else parts[0]).removesuffix(".py")
        if own == "__init__":
            continue
        for room in imports(file):
            seen += 1
            if room != own and LEVEL[room] >= LEVEL[own] and (file.name, room) not in UPWARDS:
                faults.append(f"{file.relative_to(ROOT)} → {room}")
    assert faults == [] and seen > 500


ALONE = {"requests": "transport.py", "websockets": "server.py"}


def test_the_libraries_of_the_network_are_imported_in_one_place_each() -> None:
    found = {
        (name, file.name)
        for file in files()
        for name in ALONE
        if re.search(rf"^\s*(import|from) {name}\b", file.read_text("utf-8"), re.M)
    }
    assert found == set(ALONE.items())
