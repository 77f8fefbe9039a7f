"""Takes the configured keys out of text: as they are, and as scripts like to print them. Pure."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

SHORTEST = 8  # characters; a shorter key is a word that may stand anywhere
MARK = "[a key]"


class Redactor:
    """Knows `secrets` plain, JSON- and URL-escaped, as hexadecimal and as base64, also inside of longer base64."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= SHORTEST for form in _forms(secret)}
        longest_first = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def __call__(self, text: str) -> str:
        return self._pattern.sub(MARK, text) if self._pattern else text


def _forms(secret: str) -> Iterator[str]:
    data = secret.encode("utf-8", "surrogatepass")
    yield secret
    yield json.dumps(secret)[1:-1]
    yield quote(secret, safe="")
    yield data.hex()
    yield data.hex().upper()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):  # where it begins within a group of three bytes
            whole = encode(b"\0" * before + data).decode().rstrip("=")
            inside = whole[(0, 2, 3)[before] :]  # what depends on the key alone
            last = (before + len(data)) % 3  # the last character depends on what comes behind
            yield inside[:-1] if last else inside
