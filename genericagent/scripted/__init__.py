"""A scripted model behind real HTTP: the demo's stand-in, and what tests and benchmarks talk to instead of a provider.

    with ScriptedServer([call("code_run", type="bash", script="echo hi"), say("It said hi.")]) as server:
        …  # ANTHROPIC_BASE_URL=server.url, or OPENAI_BASE_URL=server.url + "/v1"
    server.requests[1].body   # what the program sent the second time

reply    what a scripted model says and how it misbehaves (pure)
render   a reply in each wire format (pure)
strict   what the real APIs refuse in a request (pure)
server   sockets and threads
demo     the script of `--demo`
"""

from __future__ import annotations

from .demo import DEMO_MODEL, demo_script
from .reply import Reply, Script, Tool, call, fail, say, seq, text_call
from .server import Recorded, ScriptedServer
from .strict import violations

__all__ = [
    "DEMO_MODEL",
    "Recorded",
    "Reply",
    "Script",
    "ScriptedServer",
    "Tool",
    "call",
    "demo_script",
    "fail",
    "say",
    "seq",
    "text_call",
    "violations",
]
