"""The public names, and what importing the doors does: nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def test_schema_and_methods_belong_together() -> None:
    schema = json.loads((ROOT / "assets" / "tools_schema.json").read_text(encoding="utf-8"))
    names = {t["function"]["name"] for t in schema}
    methods = set(ga.GenericAgentHandler(parent=None).tool_names())
    assert names == methods and len(names) == 9


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


ALLOWED: dict[str, set[str]] = {
    "browser": {"abort", "errors", "paths", "safety", "store"},
    "store": {"abort", "errors", "paths", "tags"},
    "llm": {"abort", "errors", "paths", "config", "store", "prompts", "tags"},
    "memory": {"errors", "paths", "config", "store", "llm", "safety", "prompts"},
    "tools": {"abort", "errors", "paths", "config", "store", "llm", "safety", "prompts", "browser"},
}


@pytest.mark.parametrize("room", ALLOWED)
def test_rooms_import_only_downwards(room: str) -> None:
    import ast

    faults: list[Any] = []
    for file in (ROOT / "genericagent" / room).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == 2:
                targets = {node.module.split(".")[0]} if node.module else {a.name for a in node.names}
                faults += [(file.name, t) for t in targets - ALLOWED[room] - {"__version__"}]
            if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "") in (*NAMES, "plugins"):
                faults.append((file.name, node.module))
    assert faults == []
