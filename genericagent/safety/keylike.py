"""Text that looks like a key, whoever it belongs to: by the forms that vendors give them, or by what it is assigned to.

Pure. Hashes, ids and paths are no keys, unless they are assigned to one.
"""

from __future__ import annotations

import math
import re
from collections import Counter

# The vendors' own documents give these beginnings.
_VENDORS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|\bAGE-SECRET-KEY-1[A-Z0-9]{20,}"
    r"|(?<![\w-])(?:sk-(?:ant-|proj-|or-)?[\w-]{16,}|(?:sk|rk|pk|whsec)_(?:live|test)_\w{16,}|(?:AKIA|ASIA)[A-Z0-9]{16}"
    r"|gh[oprsu]_\w{30,}|github_pat_\w{30,}|glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}|xapp-[\w-]{20,}|AIza[\w-]{35}|ya29\.[\w-]{20,}"
    r"|GOCSPX-[\w-]{20,}|hf_[A-Za-z0-9]{25,}|npm_\w{30,}|pypi-[\w-]{30,}|SG\.[\w-]{16,}\.[\w-]{16,}|gsk_\w{30,}|xai-\w{30,}"
    r"|dop_v1_\w{30,}|shp(?:at|ss|ca)_\w{30,}|r8_\w{30,}|nvapi-[\w-]{30,}|tvly-[\w-]{20,}|pplx-\w{30,}|lin_api_\w{30,}"
    r"|\d{8,10}:[\w-]{35}|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,})(?![\w-])"
    r"|hooks\.slack\.com/services/\w+/\w+/\w+|://[^\s/:@]+:[^\s/:@<{$*]{3,}@"
)  # fmt: skip
_ASSIGNED = re.compile(
    r"(?P<name>(?<![a-z])(?:[\w-]{0,30}[_ -])?(?:pass(?:word|wd|phrase|code)|pwd|secret|token|credentials?|api[_ -]?key|(?:access|private|secret|"
    r"auth|encryption|signing)[_ -]?key|key|bearer|authorization)s?(?![a-z])|密码|口令|密钥|令牌)"
    r"[\"'`*]{0,3}\s{0,3}(?P<how>(?:[:=：]{1,2}|=>|\bis\b|为|是)\s{0,3}(?:bearer |basic )?|\s)[\"'`]?(?P<value>[!#-&(-+\--:<-_a-~]{6,})",
    re.I,
)
_PLACE = re.compile(
    r"(?:env|cmd|file|keyring|vault|op)[:=]|[~/.$%<{\[(*]|https?:|[A-Z][A-Z0-9_]*$|[\w-]*[\\/][\w./\\-]*$"
)
_ID = re.compile(r"[0-9a-f]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I)


def key_in(text: str) -> str:
    """What looks like a key, by its first characters and without the rest, or ""."""
    if found := _VENDORS.search(text):
        return _brief(found[0])
    for found in _ASSIGNED.finditer(text):
        name, value = found["name"].lower(), found["value"].rstrip(".)]}>")
        if _PLACE.match(value) or (
            _ID.fullmatch(value) and not re.search("api|access|secret|pass|pwd|auth|token", name)
        ):
            continue
        mixed = bool(re.search(r"\d", value) and re.search(r"[^\W\d]", value))
        password = re.search("pass|pwd|密码|口令", name)
        assigned = bool(found["how"].strip())
        if assigned and password and (mixed or re.search(r"[^\w.:-]", value) or value.isdigit()):
            return _brief(found[0])
        if mixed and len(value) >= 16 and (assigned or len(value) >= 24) and _bits(value) >= 3:
            return _brief(found[0])
    return ""


def _bits(text: str) -> float:
    """Bits of information a character carries, by how often each occurs."""
    shares = [count / len(text) for count in Counter(text).values()]
    return -sum(share * math.log2(share) for share in shares)


def _brief(text: str) -> str:
    return f"{text[:8]}…"
