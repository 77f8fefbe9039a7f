"""The script of `--demo`: one small real task, driven by what the tools really return. Not a model, and it says so.

It writes a program with a mistake in it, runs it, sees in the output that the result is wrong, reads the program,
patches it, runs it again and quotes what came out. Where it stands follows from the request alone, so a stopped demo
goes on where it was and several conversations don't disturb each other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .reply import Reply, Tool

DEMO_MODEL = "scripted-demo"
FILE = "demo/primes.py"
RIGHT = 25  # primes below 100
WRONG_LINE = "    for d in range(2, int(n**0.5)):"
RIGHT_LINE = "    for d in range(2, int(n**0.5) + 1):"
PROGRAM = f'''"""Count the primes below 100."""


def is_prime(n: int) -> bool:
{WRONG_LINE}
        if n % d == 0:
            return False
    return n > 1


primes = [n for n in range(100) if is_prime(n)]
print(f"{{len(primes)}} primes below 100, the largest is {{primes[-1]}}")
'''
RUN = f'import runpy\nrunpy.run_path("{FILE}", run_name="__main__")'
OUTPUT = re.compile(r"(\d+) primes below 100, the largest is \d+")
PACE = 0.012  # seconds between deltas: fast typing
DELTA = 6  # characters


def demo_script(language: str = "en", pace: float = PACE) -> Callable[[dict[str, Any], int], Reply]:
    """The demo's answers in a language ("en" or "zh"); `pace` is the time between two deltas in seconds.

    For ScriptedServer, driven over Anthropic Messages with native tools.
    """
    file = Path(__file__).parent / "texts" / ("zh.json" if language == "zh" else "en.json")
    texts: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))

    def script(body: dict[str, Any], n: int) -> Reply:
        reply = _next(texts, body)
        reply.pace, reply.chunk, reply.model = pace, DELTA, DEMO_MODEL
        return reply

    return script


def _next(texts: dict[str, str], body: dict[str, Any]) -> Reply:
    if not body.get("tools"):
        return Reply(text=texts["no_tools"])
    done = _calls(body.get("messages") or [])
    if _answered(body.get("messages") or []):
        return Reply(text=texts["follow_up"])
    done = [c for c in done if not re.search(texts["stopped"], c[1])]  # the user stopped it: it is done again
    if done and not done[-1][2]:
        return Reply(text=texts["tool_failed"].format(result=_short(done[-1][1])))
    names = [name for name, _, _ in done]
    if "file_write" not in names:
        return _step(texts["write"], "file_write", path=FILE, content=PROGRAM)
    runs = [result for name, result, _ in done if name == "code_run"]
    if not runs:
        return _step(texts["run"], "code_run", type="python", script=RUN, timeout=30)
    return _after_run(texts, names, runs[-1])


def _after_run(texts: dict[str, str], names: list[str], result: str) -> Reply:
    """What to do about the output of the last run, taken from the tool result in the request."""
    found = OUTPUT.search(result)
    if not found:
        return Reply(text=texts["no_output"].format(result=_short(result)))
    fresh = names[-1] == "code_run"
    if fresh and int(found[1]) == RIGHT:
        return Reply(
            text=texts["answer" if "file_patch" in names else "right_at_once"].format(output=found[0], file=FILE)
        )
    if fresh and "file_patch" in names:
        return Reply(text=texts["still_wrong"].format(output=found[0], right=RIGHT))
    if fresh:
        return _step(texts["read"].format(output=found[0], right=RIGHT), "file_read", path=FILE)
    if names[-1] == "file_read":
        return _step(texts["patch"], "file_patch", path=FILE, old_content=WRONG_LINE, new_content=RIGHT_LINE)
    return _step(texts["run_again"], "code_run", type="python", script=RUN, timeout=30)


def _step(text: str, tool: str, /, **args: Any) -> Reply:
    return Reply(text=text, tools=[Tool(tool, args)])


def _calls(messages: list[dict[str, Any]]) -> list[tuple[str, str, bool]]:
    """(tool, its result as text, whether it worked) of every answered call, oldest first."""
    names: dict[str, str] = {}
    calls = []
    for block in (b for m in messages if isinstance(m.get("content"), list) for b in m["content"]):
        if block.get("type") == "tool_use":
            names[block["id"]] = block["name"]
        elif block.get("type") == "tool_result" and block.get("tool_use_id") in names:
            text = _text(block.get("content"))
            ok = not block.get("is_error") and not re.search(r'"status":\s*"error"', text)
            calls.append((names[block["tool_use_id"]], text, ok))
    return calls


def _answered(messages: list[dict[str, Any]]) -> bool:
    """Whether the script has already come to an end in this conversation: a reply that called no tool."""
    return any(
        m.get("role") == "assistant"
        and not (isinstance(m["content"], list) and any(b.get("type") == "tool_use" for b in m["content"]))
        for m in messages
    )


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(b.get("text", "")) for b in content)
    return str(content or "")


def _short(result: str, limit: int = 600) -> str:
    return result if len(result) <= limit else result[:limit] + " …"
