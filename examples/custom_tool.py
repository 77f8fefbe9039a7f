"""A tool of one's own: a `do_` method and its entry in the schema.    python examples/custom_tool.py "How many words has README.md?" """

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from agent_loop import StepOutcome, agent_runner_loop
from agentmain import get_system_prompt
from ga import GenericAgentHandler, load_tool_schema
from genericagent.errors import GAError
from llmcore import resolve_client

WORD_COUNT = {
    "type": "function",
    "function": {
        "name": "word_count",
        "description": "Count the words of a text file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}


class WithWordCount(GenericAgentHandler):
    def do_word_count(self, args: dict[str, Any], response: Any) -> StepOutcome:
        """What is returned is what the model reads; an exception is told to it as well."""
        words = len((self.cwd / args["path"]).read_text(encoding="utf-8").split())
        return StepOutcome({"words": words}, next_prompt=self._next(args["_index"]))


def main(request: str) -> str:
    tools = [*load_tool_schema(), WORD_COUNT]
    run = agent_runner_loop(resolve_client(), get_system_prompt(), request, WithWordCount(cwd=Path.cwd()), tools)
    return "".join(str(piece) for piece in run)


if __name__ == "__main__":
    try:
        sys.stdout.write(main(" ".join(sys.argv[1:]) or "How many words has README.md?"))
    except GAError as error:
        sys.exit(f"error: {error}")
