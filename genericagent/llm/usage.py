"""Tokens and money: estimates before a call, prices after it, running totals. Pure but for the Meter's own state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..config import is_loopback
from .blocks import Block, Message, Usage

IMAGE_TOKENS = 1600  # Anthropic's (width × height) / 750 at the largest size we send

# Dollars per million tokens: input, output, cache read, cache write. The longest matching beginning of the model's
# name wins. List prices of the providers; `[prices]` in config.toml overrides them.
PRICES: dict[str, tuple[float, float, float, float]] = {
    "claude-opus-4-5": (5.0, 25.0, 0.5, 6.25),
    "claude-opus-4": (15.0, 75.0, 1.5, 18.75),
    "claude-sonnet-4": (3.0, 15.0, 0.3, 3.75),
    "claude-3-7-sonnet": (3.0, 15.0, 0.3, 3.75),
    "claude-haiku-4-5": (1.0, 5.0, 0.1, 1.25),
    "claude-3-5-haiku": (0.8, 4.0, 0.08, 1.0),
    "gpt-5": (1.25, 10.0, 0.125, 1.25),
    "gpt-5-mini": (0.25, 2.0, 0.025, 0.25),
    "gpt-5-nano": (0.05, 0.4, 0.005, 0.05),
    "gpt-4.1": (2.0, 8.0, 0.5, 2.0),
    "gpt-4.1-mini": (0.4, 1.6, 0.1, 0.4),
    "gpt-4o": (2.5, 10.0, 1.25, 2.5),
    "gpt-4o-mini": (0.15, 0.6, 0.075, 0.15),
    "o3": (2.0, 8.0, 0.5, 2.0),
    "o4-mini": (1.1, 4.4, 0.275, 1.1),
    "deepseek-chat": (0.28, 0.42, 0.028, 0.28),
    "deepseek-reasoner": (0.28, 0.42, 0.028, 0.28),
    "kimi-k2": (0.6, 2.5, 0.15, 0.6),
    "glm-4.6": (0.6, 2.2, 0.11, 0.6),
    "gemini-2.5-pro": (1.25, 10.0, 0.125, 1.25),
    "gemini-2.5-flash": (0.3, 2.5, 0.03, 0.3),
    "grok-4": (3.0, 15.0, 0.75, 3.0),
    "mistral-large": (2.0, 6.0, 2.0, 2.0),
}


def estimate(text: str) -> int:
    """Tokens of a text: three ASCII characters or one other character count as one."""
    ascii_chars = len(text.encode("ascii", "ignore"))
    return ascii_chars // 3 + len(text) - ascii_chars + 1


def estimate_block(block: Block) -> int:
    kind = block.get("type")
    if kind == "text":
        return estimate(block.get("text") or "")
    if kind == "image":
        return IMAGE_TOKENS
    if kind == "tool_result":
        content = block.get("content")
        return 8 + (sum(map(estimate_block, content)) if isinstance(content, list) else estimate(str(content)))
    if kind == "thinking":
        return estimate(block.get("thinking") or "") + len(block.get("signature") or "") // 3
    return estimate(str(block)) + 8


def estimate_message(message: Message) -> int:
    return 4 + sum(map(estimate_block, message["content"]))


def weigh(messages: Sequence[Message]) -> dict[str, int]:
    """Tokens of a conversation by what they are: the user's words, the model's, results of tools, images, lines that
    stand for older turns, and what this program says beside."""
    out = dict.fromkeys(("user", "assistant", "results", "images", "lines", "other"), 0)
    for message in messages:
        mine = "assistant" if message["role"] == "assistant" else "lines" if message.get("lines") else "other"
        words = "user" if message.get("request") else mine
        out[words] += 4
        for block in message["content"]:
            result = block.get("type") == "tool_result" or (
                mine == "other" and "<tool_result>" in (block.get("text") or "")
            )
            kind = "images" if block.get("type") == "image" else "results" if result else words
            out[kind] += estimate_block(block)
            words = mine if kind == words else words  # behind the request's own text
    return out


def price_of(model: str, overrides: Mapping[str, Any], base_url: str = "") -> tuple[float, ...] | None:
    """(input, output, cache read, cache write) in dollars per million tokens; None when nobody knows.

    An override is a table with `input`, `output` and optionally `cache_read`, `cache_write`.
    """
    for name in sorted(overrides, key=len, reverse=True):
        if model.startswith(name):
            table = overrides[name]
            into = float(table["input"])
            return (
                into,
                float(table["output"]),
                float(table.get("cache_read", into)),
                float(table.get("cache_write", into)),
            )
    if base_url and is_loopback(base_url):  # a model on this machine
        return (0.0, 0.0, 0.0, 0.0)
    bare = model.rsplit("/", 1)[-1]  # OpenRouter and LiteLLM write the vendor first
    known = [name for name in PRICES if bare.startswith(name)]
    return PRICES[max(known, key=len)] if known else None


def cost_of(usage: Usage, price: tuple[float, ...] | None) -> float | None:
    """Dollars, or None with an unknown price."""
    if price is None:
        return None
    plain = max(0, usage.input - usage.cache_read - usage.cache_write)
    parts = zip((plain, usage.output, usage.cache_read, usage.cache_write), price, strict=True)
    return sum(tokens * dollars for tokens, dollars in parts) / 1e6


@dataclass(eq=False)
class Meter:
    """Running totals of a task or session. `cost` is None as soon as one call had no known price."""

    usage: Usage = field(default_factory=Usage)
    cost: float | None = 0.0
    requests: int = 0

    def add(self, usage: Usage, cost: float | None, requests: int = 1) -> None:
        self.usage.add(usage)
        self.requests += requests
        self.cost = None if cost is None or self.cost is None else self.cost + cost

    def as_dict(self) -> dict[str, int]:
        return {**self.usage.as_dict(), "requests": self.requests}
