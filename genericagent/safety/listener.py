"""Who may talk to a socket of ours. Localhost is not trusted: any web page and any program of this machine reaches it.

So each is bound to a loopback address and lets in only who names it so, comes from no foreign page, and has its token.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import stat
from collections.abc import Collection, Iterable
from pathlib import Path

from ..errors import ConfigError
from ..store.atomic import write_new
from ..store.lock import FileLock

NO_TOKEN = "the token is missing or wrong"
_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_GUARDED = ("host", "origin", "authorization", "x-api-key", "content-length", "transfer-encoding")
_ADDRESSES = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2: so none with a space before the colon
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43,}")  # 256 bits in base64


def new_token() -> str:
    """256 random bits in characters that a header, an URL and a config file take as they are."""
    return secrets.token_urlsafe(32)


def refusal(
    headers: Iterable[tuple[str, str]], *, port: int, token: str, origins: Collection[str] = (), token_header: str = ""
) -> str:
    """Why a request with these headers is not let in, or "". Pure.

    `headers` are (name, value) as they came, repeated ones repeated. Host has to be a loopback name with our port (a
    name that a foreign DNS server points here is not), Origin absent or one of `origins` to the letter, never "null".
    The token comes as `Authorization: Bearer …`, in `x-api-key` or in `token_header`; with more than one of them each
    has to be right. An empty `token` lets nobody in.
    """
    found: dict[str, str] = {}
    guarded = {*_GUARDED, token_header.lower()}
    for name, value in headers:
        key = name.lower()
        if not _NAME.fullmatch(name) or any(c in value for c in "\r\n\0"):
            return "a header is malformed"
        if key in found and key in guarded:
            return f"the header {key} came twice"
        found[key] = value.strip(" \t")
    if found.get("host", "").lower() not in [f"{host}:{port}" for host in _HOSTS]:
        return "Host is not this listener"
    origin = found.get("origin")
    if origin is not None and (origin.lower() in ("", "null") or origin not in origins):
        return "Origin is not allowed"
    given = [found[key] for key in ("x-api-key", token_header.lower()) if key in found]
    if "authorization" in found:
        scheme, _, credentials = found["authorization"].partition(" ")
        given.append(credentials.strip(" ") if scheme.lower() == "bearer" else "")
    right = [secrets.compare_digest(value.encode("utf-8", "surrogatepass"), token.encode()) for value in given]
    return "" if token and right and all(right) else NO_TOKEN


def status(why: str) -> int:
    """The HTTP status of a refusal: 401 when only the token fails, else 403 (RFC 9110, 15.5.2 and 15.5.4)."""
    return 401 if why == NO_TOKEN else 403


def loopback_socket(port: int = 0, family: socket.AddressFamily = socket.AF_INET, backlog: int = 64) -> socket.socket:
    """A TCP socket that listens on 127.0.0.1 (or ::1) alone; port 0: a free one. Raises ConfigError."""
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "nt":  # there SO_REUSEADDR would let another program take the port over
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)  # type: ignore[attr-defined]
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_ADDRESSES[family], port))
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on port {port} of this machine: {error.strerror or error}") from error
    return listener


def token_file(path: Path) -> str:
    """The token in this file, for the user's eyes only; made at the first call, also when processes race for it.

    What is no token (empty, cut, a link, a pipe) or may be read by others is replaced by a new one. Raises ConfigError.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(path.with_name(f"{path.name}.lock")):
            token = read_token(path)
            if not token:
                token, temp = new_token(), path.with_name(f".ga-{secrets.token_hex(8)}.tmp")
                try:
                    write_new(temp, token.encode(), 0o600)
                    temp.replace(path)  # a link is replaced, not followed
                finally:
                    temp.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot keep a token in {path}: {error.strerror or error}") from error
    return token


def read_token(path: Path) -> str:
    """The token of a file that nobody else may read; "" when there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return ""  # missing or a link: made anew, and what stands in the way then says so
    try:
        about = os.fstat(fd)
        private = os.name != "posix" or (about.st_uid == os.geteuid() and not about.st_mode & 0o077)
        ours = stat.S_ISREG(about.st_mode) and about.st_nlink == 1 and private
        text = os.read(fd, 4096).decode("ascii", "replace").strip() if ours else ""
    finally:
        os.close(fd)
    return text if _TOKEN.fullmatch(text) else ""
