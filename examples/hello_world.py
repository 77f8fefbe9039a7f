"""The product wired by hand: a model, its tools, the loop.    python examples/hello_world.py "What time is it?" """

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from agent_loop import agent_runner_loop
from agentmain import get_system_prompt
from ga import GenericAgentHandler, load_tool_schema
from genericagent.errors import GAError
from llmcore import resolve_client


def main(request: str) -> str:
    """Show the run as it happens; returns how it ended."""
    client = resolve_client()  # the first model of your configuration
    handler = (
        GenericAgentHandler()
    )  # works in $GA_HOME/temp; what it would have to ask about is refused: nobody is there
    run = agent_runner_loop(client, get_system_prompt(), request, handler, load_tool_schema(), max_turns=20)
    while True:
        try:
            sys.stdout.write(str(next(run)))
        except StopIteration as end:
            return str(end.value["result"])


if __name__ == "__main__":
    try:
        sys.stdout.write(f"\n{main(' '.join(sys.argv[1:]) or 'Say hello.')}\n")
    except GAError as error:  # one line: what, why, what to do
        sys.exit(f"error: {error}")
