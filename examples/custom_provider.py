"""A provider of one's own: Azure OpenAI speaks Chat Completions at an address of its own, with its key in another header.

    AZURE_ENDPOINT=https://NAME.openai.azure.com AZURE_KEY=… AZURE_DEPLOYMENT=… python examples/custom_provider.py "Say hello."

(Azure OpenAI REST API reference, "Chat completions".) One that speaks otherwise supplies `encode` and `Decoder` as well.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from agent_loop import agent_runner_loop
from agentmain import get_system_prompt
from ga import GenericAgentHandler, load_tool_schema
from genericagent.llm import chat
from llmcore import NativeOAISession, NativeToolClient

VERSION = "2024-10-21"


class AzureSession(NativeOAISession):
    """Retry, streaming, stopping, history and usage are those of every session."""

    @property
    def wire(self) -> SimpleNamespace:
        def url(base: str) -> str:
            return f"{base.rstrip('/')}/openai/deployments/{self.model.model}/chat/completions?api-version={VERSION}"

        return SimpleNamespace(url=url, headers=lambda key: {"api-key": key}, encode=chat.encode, Decoder=chat.Decoder)


def main(request: str) -> str:
    given = {"apibase": "AZURE_ENDPOINT", "apikey": "AZURE_KEY", "model": "AZURE_DEPLOYMENT"}
    if missing := [name for name in given.values() if not os.environ.get(name)]:
        raise SystemExit(f"set {', '.join(missing)} first")
    session = AzureSession({key: os.environ[name] for key, name in given.items()})
    client = NativeToolClient(session)
    return "".join(
        map(str, agent_runner_loop(client, get_system_prompt(), request, GenericAgentHandler(), load_tool_schema()))
    )


if __name__ == "__main__":
    sys.stdout.write(main(" ".join(sys.argv[1:]) or "Say hello."))
