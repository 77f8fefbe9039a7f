"""`ga sessions [WORDS]`: saved conversations, listed, searched, archived."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence

from .. import paths
from ..control import titled
from ..errors import ConfigError, UsageError
from ..prompts import catalog
from ..safety.redact import Redactor
from ..safety.term import one_line
from ..store import archive, search
from .cells import fitted, flush
from .commands import AGE, age

DAYS = archive.OLD // 86400


def run_sessions(argv: Sequence[str]) -> int:
    """The subcommand. Returns the exit code: 1 when a session could not be archived. Raises UsageError, SessionError."""
    from .args import Parser

    parser = Parser(prog=f"{paths.this_program()} sessions", description=__doc__, allow_abbrev=False)
    parser.add_argument("words", nargs="*", help='words that the conversation has; "in quotes": that stand together')
    parser.add_argument("--all", action="store_true", help="also those of watchers and sub-agents")
    parser.add_argument("--days", type=float, default=math.inf, metavar="N", help="only those of the last N days")
    parser.add_argument(
        "--archive", nargs="?", type=float, const=DAYS, metavar="DAYS",
        help=f"compress those untouched for so many days (default {DAYS}); they are found and resumed as before",
    )  # fmt: skip
    args = parser.parse_args(argv)
    now = time.time()
    if args.archive is not None:
        if not args.archive >= 1:
            raise UsageError("--archive takes a number of days from 1 on")
        paths.ensure_home()
        packed, faults = archive.tidy(now - args.archive * 86400)
        sys.stdout.write(f"archived: {packed}\n")
        sys.stderr.writelines(f"warning: {one_line(str(fault), 300)}\n" for fault in faults)
        return 1 if faults else 0
    if not args.days > 0:
        raise UsageError("--days must be more than 0")
    return _show(" ".join(args.words), max(0.0, now - args.days * 86400), now, args.all)


def _show(query: str, since: float, now: float, everything: bool) -> int:
    redact, texts = _redactor(), catalog("chat")
    if query.strip():
        hits, damaged = search.search(query, since, now, 50, redact, everything=everything)
        found = [(hit.session, hit.around) for hit in hits]
    else:
        listed, damaged = search.listing(since)
        found = [(info, "") for info in listed if everything or not info.by]
    for info, around in found:
        line = f"{one_line(info.id)}  {flush(age(texts, now - info.updated), AGE)}  {one_line(redact(titled(info)))}\n"
        line += f"    {one_line(around, 200)}\n" if around else ""
        sys.stdout.write(fitted(line, sys.stdout, "  "))
    sys.stderr.writelines(f"warning: {one_line(name)} is damaged and is left out\n" for name in damaged)
    if not found:
        sys.stderr.write(f"{texts['no_hits' if query.strip() else 'no_sessions']}\n")
    return 0


def _redactor() -> Redactor:
    from llmcore import load_config

    try:
        return Redactor(load_config().hidden())
    except ConfigError:  # this does not need a model
        return Redactor(())
