"""The wire modules behind the interface of the conformance runners in $GA_TESTDATA/wire.

python ../shared/wire/run_corpus.py tests/wire_adapter.py --all
python ../shared/wire/history_cases.py tests/wire_adapter.py
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from genericagent.llm import anthropic, blocks, chat, decode, faults, history, responses  # noqa: E402

WIRES = {"anthropic": anthropic, "chat": chat, "responses": responses}


def adapter(kind: str, stream: bool, body: bytes, content_type: str) -> dict[str, Any]:
    return adapter_chunks(kind, [body], content_type)


def adapter_chunks(kind: str, chunks: Iterable[bytes], content_type: str) -> dict[str, Any]:
    answer = decode.decode_body(WIRES[kind], chunks)
    usage = answer.usage
    return {
        "blocks": answer.blocks,
        "stop_reason": answer.stop_reason or answer.raw_stop_reason,
        "usage": usage and {f: getattr(usage, f) for f in ("input", "output", "cache_read", "cache_write")},
        "error": answer.error and answer.error.message if answer.outcome == "error" else None,
        "incomplete": answer.outcome == "truncated",
    }


def http_error(status: int, headers: dict[str, str], body: bytes) -> dict[str, Any]:
    error = faults.http_error(status, headers, body, time.time())
    return {"retryable": error.retryable, "retry_after": error.retry_after, "message": error.message}


def prepare(kind: str, messages: list[Any], model: str) -> list[Any]:
    body = WIRES[kind].encode(blocks.Request(model, "", messages, []))
    sent: list[Any] = body["input" if kind == "responses" else "messages"]
    return sent


def compact(messages: list[Any], budget_chars: int) -> list[Any]:
    """The client's own shortening: a cut to a window of that many characters."""
    return history.cut(messages, budget_chars // 3) or messages
