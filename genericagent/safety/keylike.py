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
    r"|(?<![\w-])(?:sk-(?:ant|proj|or|svcacct)-[\w-]{16,}|sk-(?=[a-z]*[A-Z\d])\w{16,}|(?:sk|rk|pk)_(?:live|test)_\w{16,}|whsec_\w{20,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|LTAI[A-Za-z0-9]{12,}|AKID[A-Za-z0-9]{16,}|gh[oprsu]_\w{30,}|github_pat_\w{30,}|glpat-[\w-]{16,}"
    r"|xox[abeoprs]-[\w-]{10,}|xapp-[\w-]{20,}|AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}|hf_[A-Za-z0-9]{25,}|npm_\w{30,}"
    r"|pypi-[\w-]{30,}|SG\.[\w-]{16,}\.[\w-]{16,}|gsk_\w{30,}|xai-\w{30,}|dop_v1_\w{30,}|shp(?:at|ss|ca)_\w{30,}|r8_\w{30,}"
    r"|nvapi-[\w-]{30,}|tvly-[\w-]{20,}|pplx-\w{30,}|lin_api_\w{30,}|hv[sb]\.[\w-]{20,}|glsa_\w{20,}|dckr_pat_[\w-]{20,}|dapi[0-9a-f]{32}"
    r"|ATATT3[\w=-]{20,}|figd_[\w-]{20,}|ntn_[A-Za-z0-9]{20,}|sntry[su]_[\w+/=-]{20,}|pat-(?:na|eu)\d-[0-9a-f-]{30,}|EAA[A-Z][A-Za-z0-9]{20,}"
    r"|secret_[A-Za-z0-9]{40,}|sq0csp-[\w-]{20,}|key-[0-9a-f]{32}"
    r"|\d{8,10}:[\w-]{35}|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,})(?![\w-])"
    r"|hooks\.slack\.com/services/\w+/\w+/\w+|discord(?:app)?\.com/api/webhooks/\d+/[\w-]{20,}"
)  # fmt: skip
_URL = re.compile(r"://([^\s/:@]*):(?![<{$*%\[])([^\s/@]{3,})@")
_ASSIGNED = re.compile(
    r"(?P<name>(?<![a-z0-9_.-])(?:(?:api|access|account|private|secret|auth|signing) )?[a-z0-9_.-]{0,40}(?:pass|pwd|pw|secret|token"
    r"|credential|key|bearer|authorization)[a-z0-9_-]{0,20}|密码|口令|密钥|令牌)[\"'`*]{0,3}"
    r"(?P<how>[ \t]{0,3}(?:(?: is|为|是)?[ \t]?(?::{1,2}|：|:?=(?!=)|=>|\|)| is |为|是|-(?= ))\**[ \t]{0,3}(?:bearer |basic )?|[ \t]+)"
    r"(?P<quote>[\"'`]?)(?P<value>[!#-&(-+\--:<-_a-{}~]{4,})",
    re.I,
)
_COMMAND = re.compile(  # an option of a command, or a user's name, and behind it the password
    r"\b(?:curl\b[^\n]{0,200}?\s(?:-u|--user)[ =]?[\"']?[^\s:\"']{1,64}:|(?:(?:mysql|mariadb)\w{0,9}\b[^\n]{0,200}?\s-p|sshpass +-p ?)[\"']?"
    r"|(?:login|username|user)[ \t:]{1,3}[^\s/,]{1,64}[\s/,]{1,9}(?:and )?(?:password|passwd|pass)[ \t:]{1,3})(?P<value>[^\s\"'`]{4,})"
)
_FOREIGN = re.compile(
    r"\b(?:passwort|kennwort|contraseña|mot de passe|senha|wachtwoord|пароль|パスワード|비밀번호)\b", re.I
)
_PASSWORDS = set(re.findall(r"\w+", "password passwd passphrase passcode pass pwd pw 密码 口令"))
_KEYS = set(re.findall(r"\w+", "api access account private auth"))
_STRONG = {*_PASSWORDS, *_KEYS, "apikey", "secret", "token", "bearer", "authorization", "令牌", "密钥"}
_NAMES = _STRONG - _KEYS | {"key", "credential"}
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[^\x00-\x7f]+")  # of a name, also of camelCase
_GLUED = re.compile(r".+(?=(?:password|passwd|token|secret)$)|s$(?<=[nty]s)")  # PGPASSWORD, authtoken, keys
_PLACE = re.compile(
    r"(?:env|cmd|file|keyring|vault|op)[:=]|[~/.$%<{\[(*]|![a-z]+$|#\{|https?:|[A-Z][A-Z0-9_]*$|(.)\1+$|test_|your|(?=[\d.:/-]+$)\d*[.:/-]"
)
_CODE = re.compile(
    r"[A-Za-z_][\w.]*[\[(]|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+$|(?![A-Za-z0-9+/]{40}$)[\w-]*[\\/][\w./\\-]*$"
)
_ID = re.compile(r"(?:0x)?[0-9a-f]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\w{1,12}(?::[\w-]{1,12}){2,}", re.I)
_DUMMY = {"pass", "password", "passwd", "pwd", "secret", "changeme"}


def key_in(text: str) -> str:
    """What looks like a key, by the first characters of it or its name, or ""."""
    if found := _VENDORS.search(text):
        return _brief(found[0])
    for found in _URL.finditer(text):
        if found[2].lower() not in {found[1].lower(), *_DUMMY}:
            return _brief(f"://{found[1]}")
    text = _FOREIGN.sub("password", text)
    for found in _COMMAND.finditer(text):
        value = found["value"]
        if re.search(r"\d|[^\w,.:;)-]", value) and not _PLACE.match(value):
            return _brief(found[0])
    for found in _ASSIGNED.finditer(text):
        name = {_GLUED.sub("", part.lower()) for part in _PART.findall(found["name"])}
        value = found["value"].rstrip(".)]}>")
        if not name & _NAMES or _PLACE.match(value) or (not found["quote"] and _CODE.match(value)):
            continue
        if _ID.fullmatch(value) and not name & _STRONG:
            continue
        mixed = bool(re.search(r"\d", value) and re.search(r"[^\W\d]", value))
        given, chinese = bool(found["how"].strip()) or found["name"].startswith("--"), bool(name & {"密码", "口令"})
        odd = mixed or re.search(r"[^\w.:/-]", value) or (value.isdigit() and name != {"pass"})
        if (
            name & _PASSWORDS
            and (given or chinese)
            and len(value) > 3
            and (odd or given and chinese and len(value) > 5)
        ):
            return _brief(found["name"])
        if mixed and len(value) >= 16 and (given or len(value) >= 24) and _bits(value) >= 3:
            return _brief(found["name"])
    return ""


def _bits(text: str) -> float:
    """Bits of information a character carries, by how often each occurs."""
    shares = [count / len(text) for count in Counter(text).values()]
    return -sum(share * math.log2(share) for share in shares)


def _brief(text: str) -> str:
    return f"{text[:8]}…"
