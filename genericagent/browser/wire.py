"""What the bridge and the extension say to each other, without I/O: frames, the proofs of pairing, references in a batch.

Both know a secret and neither sends it. The extension speaks first and proves itself, so that whoever does not know the
secret gets no byte from us; then each side proves that it knows the secret now, with the other's nonce in the proof:

    extension → {"knock":   {"nonce": E, "time": ms, "proof": HMAC(knock, port, E, ms)}}
    we        → {"welcome": {"nonce": S, "proof": HMAC(server, port, E, S), "about": {…}}}
    extension → {"hello":   {"proof": HMAC(extension, port, E, S), "browser": {"id", "name", "version", "agent"}}}

The port stands in each proof: a program that passes proofs on to another port gets nowhere.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Sequence
from typing import Any

from ..errors import ToolError

PORT, LINK_PORT = 18765, 18766
EXTENSION_ID = "enkmninpmojabbkmkdiidefimkingheh"  # follows from `key` in the extension's manifest
ORIGIN = f"chrome-extension://{EXTENSION_ID}"
MAX_FRAME = 256 * 1024 * 1024  # bytes; the extension stops at 48 million characters
MAX_UNPAIRED = 8 * 1024  # bytes that somebody may send before he has proved who he is
CLOCK = 60.0  # seconds by which the time of a knock may differ from ours
_NONCE = re.compile(r"[0-9a-f]{64}")


def proof(secret: str, role: str, port: int, *parts: object) -> str:
    """HMAC-SHA256 in hex, of `role` ("knock", "server", "extension"), the port and what else is given."""
    text = "|".join(map(str, ("ga-bridge-1", role, port, *parts)))
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


class Nonces:
    """Nonces of knocks within the last two minutes: none is taken twice."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}

    def fresh(self, nonce: str, now: float) -> bool:
        self._seen = {n: at for n, at in self._seen.items() if now - at < 2 * CLOCK}
        if nonce in self._seen or len(self._seen) >= 10_000:
            return False
        self._seen[nonce] = now
        return True


class Pairing:
    """Our side of one pairing. `take` a frame: the answer to send, or None when `browser` is who we talk to now.

    Raises PermissionError for everything that is no proof; then the connection ends without a word.
    """

    def __init__(self, secret: str, port: int, nonces: Nonces, nonce: str, about: dict[str, Any]) -> None:
        self.browser: dict[str, str] | None = None
        self._secret, self._port, self._nonces, self._own, self._about = secret, port, nonces, nonce, about
        self._theirs = ""

    def take(self, frame: str | bytes, now: float) -> str | None:
        try:
            data = decode(frame)
            if self._theirs:
                self._hello(data["hello"])
                return None
            return self._knock(data["knock"], now)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PermissionError(f"no frame of a pairing: {error}") from error

    def _knock(self, knock: dict[str, Any], now: float) -> str:
        nonce, time = knock["nonce"], knock["time"]
        if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce) or type(time) is not int:
            raise ValueError("malformed knock")
        self._check(knock["proof"], proof(self._secret, "knock", self._port, nonce, time))
        if abs(now - time / 1000) > CLOCK or not self._nonces.fresh(nonce, now):
            raise PermissionError("the knock is old")
        self._theirs = nonce
        own = proof(self._secret, "server", self._port, nonce, self._own)
        return encode({"welcome": {"nonce": self._own, "proof": own, "about": self._about}})

    def _hello(self, hello: dict[str, Any]) -> None:
        self._check(hello["proof"], proof(self._secret, "extension", self._port, self._theirs, self._own))
        self.browser = {key: str(hello["browser"].get(key) or "")[:300] for key in ("id", "name", "version", "agent")}
        if not re.fullmatch(r"[a-z0-9]{1,16}", self.browser["id"]):
            raise ValueError("the browser has no id")

    @staticmethod
    def _check(given: Any, right: str) -> None:
        if not isinstance(given, str) or not hmac.compare_digest(given.encode("utf-8", "replace"), right.encode()):
            raise PermissionError("wrong proof")


def encode(data: dict[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":"))


def decode(frame: str | bytes) -> dict[str, Any]:
    """The object in a frame, half characters in its texts replaced. Raises ValueError for everything else."""
    try:
        data: Any = json.loads(frame)
        if not isinstance(data, dict):
            raise ValueError("not an object")
        if (b"\\ud" if isinstance(frame, bytes) else "\\ud") in frame:  # type: ignore[operator]
            data = _whole(data)
    except RecursionError:
        raise ValueError("too deep") from None
    found: dict[str, Any] = data
    return found


def _whole(data: Any) -> Any:
    """Halves of surrogate pairs, which a JavaScript text may have and nothing can write, become question marks."""
    if isinstance(data, str):
        return data.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(data, list):
        return [_whole(one) for one in data]
    return {_whole(k): _whole(v) for k, v in data.items()} if isinstance(data, dict) else data


def command_of(code: str | dict[str, Any]) -> dict[str, Any] | None:
    """The command that `code` is, as an object or its text: one with a text `cmd`. None for JavaScript."""
    if isinstance(code, str):
        if not code.lstrip().startswith("{"):
            return None
        try:
            code = json.loads(code)
        except (ValueError, RecursionError):
            return None
    return code if isinstance(code, dict) and isinstance(code.get("cmd"), str) else None


def seconds(value: Any) -> float:
    """A timeout as a command gives it. Raises ToolError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 600:
        raise ToolError("timeout must be a number of seconds, at most 600")
    return float(value)


_REFERENCE = re.compile(r"\{\{(\d+)((?:\.[\w-]+)*)\}\}")


def resolve(step: Any, results: Sequence[dict[str, Any]]) -> Any:
    """A step of a batch with what earlier ones gave put in: `{{0.value.id}}` alone is that value itself, inside a longer
    text its text. Steps count from 0. Raises ToolError for a reference that leads nowhere."""
    if isinstance(step, dict):
        return {key: resolve(value, results) for key, value in step.items()}
    if isinstance(step, list):
        return [resolve(value, results) for value in step]
    if not isinstance(step, str):
        return step
    alone = _REFERENCE.fullmatch(step)
    if alone:
        return _follow(alone[1], alone[2], results)

    def text(found: re.Match[str]) -> str:
        value = _follow(found[1], found[2], results)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return _REFERENCE.sub(text, step)


def _follow(number: str, path: str, results: Sequence[dict[str, Any]]) -> Any:
    try:
        value: Any = results[int(number)]
        for key in filter(None, path.split(".")):
            value = value[int(key)] if isinstance(value, list) else value[key]
    except (LookupError, TypeError, ValueError):
        raise ToolError(f"the reference {{{{{number}{path}}}}} leads nowhere: {len(results)} steps are done") from None
    return value
