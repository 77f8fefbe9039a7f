"""`ga browser setup|status`: get the extension ready, and see whether a browser is there."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from .. import paths
from ..browser import wire
from ..errors import ConfigError, UsageError
from ..safety.listener import token_file
from ..safety.term import one_line
from ..store import atomic

WAIT = 5.0  # seconds for the extension to find us: it looks every 3, unless the browser has put it to sleep
_STEPS = """The extension is in {folder}

One step is yours, once for each browser profile (Chrome, Chromium, Edge, Brave):
  1. open  chrome://extensions  and switch on "Developer mode" (top right)
  2. "Load unpacked" and choose  {folder}
Then `{ga} browser status` should say that it is connected. {about} says what it may do and why.
"""


def run_browser(argv: Sequence[str]) -> int:
    """The subcommand. Returns the exit code; raises UsageError, ConfigError."""
    from .args import Parser

    parser = Parser(prog=f"{paths.this_program()} browser", description=__doc__, allow_abbrev=False)
    sub = parser.add_subparsers(dest="word")
    setup = sub.add_parser("setup", help="copy the extension to $GA_HOME/extension and pair it")
    setup.add_argument("--port", type=int, help=f"for the extension (default {wire.PORT})")
    setup.add_argument("--link-port", type=int, help=f"for further processes (default {wire.LINK_PORT})")
    setup.add_argument("--new-secret", action="store_true", help="shut out every copy made so far")
    sub.add_parser("status", help="who is connected, after a real round trip")
    args = parser.parse_args(argv or ["--help"])
    return _setup(args) if args.word == "setup" else _status()


def _setup(args: argparse.Namespace) -> int:
    from ..browser.server import ports

    old = ports(paths.home())
    port, link_port = args.port or old[0], args.link_port or old[1]
    if not (0 < port < 65536 and 0 < link_port < 65536 and port != link_port):
        raise UsageError("the ports must be two different numbers from 1 to 65535")
    paths.ensure_home()
    folder = write_extension(paths.home(), port, link_port, new_secret=args.new_secret)
    sys.stdout.write(_STEPS.format(folder=folder, ga=paths.this_program(), about=paths.shipped("docs", "BROWSER.md")))
    return 0


def write_extension(
    home: Path, port: int = wire.PORT, link_port: int = wire.LINK_PORT, *, new_secret: bool = False
) -> Path:
    """The extension with its half of the secret, as a folder in `home`; returns the folder.

    Made anew each time but for the secret, so it can also refresh one that the browser has loaded. Raises ConfigError.
    """
    target = home / "extension"
    secret = paths.pairing(home)
    try:
        if new_secret:
            secret.unlink(missing_ok=True)
        token = token_file(secret)
        atomic.write_text(home / "browser" / "ports.json", json.dumps({"port": port, "link_port": link_port}))
        target.mkdir(mode=0o700, exist_ok=True)
        target.chmod(0o700)
        shutil.rmtree(target / "page", ignore_errors=True)  # page scripts of versions that are gone
        (target / "page").mkdir()
        for file in paths.shipped("assets", "tmwd_cdp_bridge").iterdir():
            shutil.copyfile(file, target / file.name)
        atomic.write_text(target / "pairing.json", json.dumps({"secret": token, "port": port}), mode=0o600)
        (target / "pairing.json").chmod(0o600)
    except OSError as error:
        raise ConfigError(f"cannot make {error.filename or target}: {error.strerror or error}") from error
    return target


def _status() -> int:
    from TMWebDriver import TMWebDriver

    with TMWebDriver() as driver:
        found = driver.status(WAIT)
    for browser in found["browsers"]:
        name = browser["name"] or browser["id"]
        if "error" in browser:
            line = f"{name}: no answer ({browser['error']}); last contact {browser['age']:.0f} s ago"
        else:
            line = f"{name}: connected, answered in {browser['ms']:.0f} ms, {browser['tabs']} tabs shared"
        line += f" · extension {browser['version']} · port {found['port']} (process {found['pid']})"
        sys.stdout.write(f"{one_line(line, 1000)}\n")
    return 1 if any("error" in browser for browser in found["browsers"]) else 0
