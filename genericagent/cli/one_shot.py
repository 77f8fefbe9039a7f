"""One request, one answer: `-p TEXT` on stdout, `--func FILE` into FILE.out.txt."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import paths
from ..errors import UsageError
from ..safety.term import clean, one_line
from ..store import atomic
from .running import ROUND_END, exit_code, outcome, run_one

if TYPE_CHECKING:
    from agentmain import GenericAgent


def run_prompt(args: Namespace, make_agent: Callable[[], GenericAgent]) -> int:
    """`-p`: the answer on stdout in the wanted format, everything else on stderr."""
    text = _stdin() if args.prompt == "-" else args.prompt
    if not text.strip():
        raise UsageError("the request is empty")
    show = {"stream-json": _stream_line, "text": _progress(args.verbose)}.get(args.output_format)
    end = run_one(make_agent(), text, show)
    if args.output_format == "json":
        sys.stdout.write(json.dumps(outcome(end), ensure_ascii=False) + "\n")
    elif args.output_format == "text":
        question = None if end["error"] else end["question"]  # a denial is told as the error that it is
        if end["answer"]:
            sys.stdout.write(_shown(end["answer"]) + "\n")
        if question:
            lines = [question["question"], *(f"- {c}" for c in question["candidates"])]
            sys.stdout.write(_shown("\n".join(lines)) + "\n")
            if end.get("session"):
                sys.stderr.write(f"note: {paths.this_program()} --resume {end['session']} -p ANSWER goes on\n")
        sys.stderr.writelines(f"{how}: {one_line(path, 4000)}\n" for path, how in end.get("files_changed", {}).items())
        if end["error"]:
            sys.stderr.write(f"error: {one_line(end['error'], 4000)}\n")
        if end.get("denied"):
            from ..memory.inbox import waits

            sys.stderr.write(f"note: {one_line(line, 300)}\n" if (line := waits()) else "")
    return exit_code(end)


def _stdin() -> str:
    """UTF-8, whatever the locale says; bytes that are none become marks."""
    binary = getattr(sys.stdin, "buffer", None)
    return binary.read().decode("utf-8-sig", "replace") if binary else sys.stdin.read()


def _progress(verbose: bool) -> Callable[[dict[str, Any]], None]:
    """What is going on, on stderr: retries, and with `verbose` everything."""

    def show(item: dict[str, Any]) -> None:
        event = item.get("event") or {}
        if event.get("kind") == "retry":
            sys.stderr.write(f"note: {one_line(event['text'], 300)}\n")
        elif verbose and item.get("next"):
            sys.stderr.write(clean(item["next"]))
            sys.stderr.flush()

    return show


def _shown(text: str) -> str:
    """A terminal gets no control codes from a model; a file or a pipe gets every character."""
    return clean(text) if sys.stdout.isatty() else text


def _stream_line(item: dict[str, Any]) -> None:
    line = outcome(item) if "done" in item else item
    sys.stdout.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def run_func(args: Namespace, make_agent: Callable[[], GenericAgent]) -> int:
    """`--func FILE`: the whole output into FILE.out.txt, ended by the round-end line."""
    source = Path(args.func)
    try:
        text = source.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {source}: {error}") from None
    if not text.strip():
        raise UsageError(f"{source} is empty")
    end = run_one(make_agent(), text, None)
    parts = [end["done"].strip(), end["error"] and f"error: {end['error']}", ROUND_END]
    atomic.write_own(Path(f"{source}.out.txt"), "\n\n".join(p for p in parts if p) + "\n")
    if end["error"]:
        sys.stderr.write(f"error: {one_line(end['error'], 4000)}\n")
    return exit_code(end)
