"""What a provider's error means: one line for the user, and whether the same call may succeed later. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from ..errors import LLMError

TOO_LONG = re.compile(r"context|too (long|large|many)|maximum|exceed|token limit", re.I)
RETRYABLE = frozenset({408, 409, 425, 429, 500, 502, 503, 504, *range(520, 530)})
MESSAGE_LIMIT = 400  # characters of a provider's words that are shown

_MESSAGE_KEYS = (
    *("message", "Message", "error_description", "error", "detail", "details", "msg", "error_message", "error_msg"),
    *("errors", "status_msg", "reason", "title"),
)
_ANSWER_KEYS = frozenset({"choices", "content", "output", "response", "type", "object"})
# An account that is out of money stays so however often one asks. OpenAI, Anthropic, OpenRouter, DeepSeek, Moonshot,
# Zhipu, DashScope and xAI each have their own words for it.
_QUOTA = re.compile(
    r"insufficient[ _](?:quota|balance|funds|credit)|credit_?balance|credit balance|balance (?:is )?(?:too low|not enough)"
    r"|exceeded_current_quota|exceeded your (?:current|monthly|daily|account) quota|quota[ _]exceeded|exceeded.{0,20}quota"
    r"|billing_(?:hard_limit|not_active)|billing_error|(?:more|out of|no|not enough|run out of|used all available) credits"
    r"|payment_?required|payment required|arrear|spending[ _]limit|usage limit reached|账户余额|余额不足|欠费|额度(?:不足|已用)",
    re.I,
)
_PERMANENT = re.compile(
    r"invalid|authentication|permission|unauthorized|forbidden|not_?found|content_?filter|context_?length"
    r"|exceed_context|unsupported|not_supported|bad_?request|tool_use_failed|too_large|policy|safety",
    re.I,
)
_NO_MODEL = re.compile(
    r"model.{0,60}(?:not (?:exist|found|available|supported)|unknown|invalid)|(?:unknown|invalid|no such) model|模型不存在",
    re.I,
)
_BUSY = re.compile(r"overloaded|rate.?limit|capacity|busy|too many requests|internal|server error|繁忙|限流", re.I)
_AGAIN = re.compile(r"(?:again|retry)(?: in| after)[: ]+((?:\d+(?:\.\d+)? ?(?:ms|h|m|s)[a-z]* ?)+)", re.I)
_SPAN = re.compile(r"(\d+(?:\.\d+)?) ?(ms|milli|h|m|s)", re.I)
_SECONDS = {"ms": 0.001, "milli": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def http_error(status: int, headers: Mapping[str, str], body: bytes, now: float) -> LLMError:
    """The error behind an HTTP status that is no success. `now` is Unix time in seconds, for Retry-After dates."""
    heads = {str(k).lower(): str(v).strip() for k, v in headers.items()}
    value = _load(body)
    message = _shown(value) or _phrase(status)
    if 300 <= status < 400:
        message = f"the address redirects to {heads.get('location', 'another one')}; correct base_url"
    retry_after = _retry_after(heads, now)
    hint = retry_after if retry_after is not None else _hint(message)
    retryable = status in RETRYABLE and not _is_quota(value, message, hint is not None)
    retryable = {"true": True, "false": False}.get(heads.get("x-should-retry", "").lower(), retryable)
    return LLMError(f"HTTP {status}: {message}", retryable=retryable, retry_after=hint, status=status)


def in_band(value: Any) -> LLMError:
    """The error inside an answer with status 200: an object, a string, or whatever the provider put there.

    Transient unless it says otherwise: what a provider rejects for good it mostly rejects before it starts to answer.
    """
    message = _shown(value) or "the provider reported an error without saying which"
    status = _status(value)
    hint = _hint(message)
    if _is_quota(value, message, hint is not None):
        retryable = False
    elif status is not None:
        retryable = status in RETRYABLE
    else:
        retryable = not _PERMANENT.search(_codes(value))
    return LLMError(message, retryable=retryable, retry_after=hint, status=status)


def remedy(error: LLMError) -> str:
    """What would help the user, who has the error for good: money, key, wait, model, shorter, address or check."""
    status, text = error.status, error.message
    if status == 402 or (status in (None, 403, 429) and _QUOTA.search(text)):
        return "money"
    if status in (401, 403):
        return "key"
    if status == 404 or (status in (400, 422, None) and _NO_MODEL.search(text)):
        return "model"
    if status == 413 or (status in (400, 422, None) and TOO_LONG.search(text) and not error.retryable):
        return "shorter"
    if status is None:
        return "wait" if _BUSY.search(text) else "address"
    return "wait" if status in RETRYABLE or status >= 500 else "check"


def not_an_answer(body: bytes | str) -> LLMError:
    """A body that is no answer at all: a web page, some text, or JSON of another kind."""
    text = body if isinstance(body, str) else body[:4000].decode("utf-8", "replace")
    return LLMError(f"the provider sent no answer but {_shown(text) or 'nothing'}; check base_url")


def find_error(body: Mapping[str, Any], certain: bool = False) -> Any:
    """The error in a JSON object of an answer, or None. `certain`: it came in an event named "error"."""
    error = body.get("error")
    if error and not (isinstance(error, Mapping) and not any(error.values())):
        return error
    base = body.get("base_resp")  # MiniMax
    if isinstance(base, Mapping) and base.get("status_code"):
        return base
    if certain or "error" in (body.get("type"), body.get("object")):
        return body
    if not _ANSWER_KEYS & body.keys() and message_of(body):
        return body
    return None


def message_of(value: Any, depth: int = 0) -> str:
    """The words of an error of any shape, "" when there are none."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, (list, tuple)) and depth < 8:
        return "; ".join(filter(None, (message_of(v, depth + 1) for v in value[:3])))
    if not isinstance(value, Mapping) or depth >= 8:
        return ""
    found = next((m for k in _MESSAGE_KEYS if (m := message_of(value.get(k), depth + 1))), "")
    metadata = value.get("metadata")  # OpenRouter: "Provider returned error", the real reason is in here
    raw = (
        message_of(_load(str(metadata.get("raw") or "").encode("utf-8", "replace")), depth + 1)
        if isinstance(metadata, Mapping)
        else ""
    )
    place = value.get("loc")  # FastAPI's validation errors
    if found and isinstance(place, list):
        found = f"{'.'.join(map(str, place))}: {found}"
    return f"{found}: {raw}" if found and raw else found or raw


def one_line(text: str, limit: int = MESSAGE_LIMIT) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _load(body: bytes) -> Any:
    """The JSON value of a body, or its text."""
    text = body.decode("utf-8", "replace").strip().removeprefix("\ufeff")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _shown(value: Any) -> str:
    """The words as one short line; of a web page its title, of an object without words its beginning."""
    if isinstance(value, str) and value.lstrip()[:1] == "<":
        title = re.search(r"<title[^>]*>(.*?)</title>", value, re.I | re.S)
        return f"a web page ({one_line(title[1], 100)})" if title and title[1].strip() else "a web page"
    message = message_of(value)
    if not message and value and not isinstance(value, str):
        message = json.dumps(value, ensure_ascii=False, default=str)
    return one_line(message.encode("utf-8", "replace").decode("utf-8"))


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "no explanation"


def _walk(value: Any, depth: int = 0) -> list[Mapping[str, Any]]:
    """The objects of an error, outer ones first."""
    if isinstance(value, list) and depth < 4:
        return [m for v in value[:5] for m in _walk(v, depth + 1)]
    if not isinstance(value, Mapping) or depth >= 4:
        return []
    inner = [m for key in ("error", "details", "innererror") for m in _walk(value.get(key), depth + 1)]
    return [value, *inner]


def _codes(value: Any) -> str:
    """Type and code words of an error, for matching."""
    found = [m.get(key) for m in _walk(value) for key in ("type", "code", "status", "reason")]
    return " ".join(str(f) for f in found if f)


def _status(value: Any) -> int | None:
    """The HTTP status that an error carries in its own fields."""
    for holder in _walk(value):
        for key in ("status_code", "code", "status", "http_status"):
            found = holder.get(key)
            if isinstance(found, str) and found.isdigit():
                found = int(found)
            if isinstance(found, int) and 400 <= found < 600:
                return found
    return None


def _is_quota(value: Any, message: str, has_hint: bool) -> bool:
    """Whether the account is out of money. With a time to wait it is a rate limit that calls itself a quota (Gemini)."""
    codes = _codes(value)
    if "rate_limit" in codes.lower():
        return False
    return bool(_QUOTA.search(codes) or "1113" in codes.split() or (_QUOTA.search(message) and not has_hint))


def _retry_after(heads: Mapping[str, str], now: float) -> float | None:
    """Seconds the provider asks to wait: `retry-after-ms`, or `retry-after` as seconds or as a date still to come."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(heads.get(name, "")) / scale
        except ValueError:
            continue  # not there, or a date
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    from email.utils import parsedate_to_datetime

    try:
        when = parsedate_to_datetime(heads.get("retry-after", "")).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None  # no header or no date: back-off decides
    return when - now if when > now else None


def _hint(message: str) -> float | None:
    """Seconds to wait as some providers write them into the message: "try again in 1.898s", "retry after 6 seconds"."""
    found = _AGAIN.search(message)
    return sum(float(n) * _SECONDS[unit.lower()] for n, unit in _SPAN.findall(found[1])) if found else None
