"""The program's diary in $GA_HOME/logs: model calls, retries, bugs with their traceback. Never a configured key, and
none on stderr either."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .. import paths
from ..errors import GAError
from ..prompts import say
from ..safety.term import clean, one_line

LARGEST = 2 << 20  # bytes; a larger one is set aside at the next start, one old one is kept


def start_log(folder: Path, redact: Callable[[str], str], lines: Iterable[str] = ()) -> None:
    """Write the log of "genericagent" into `folder`/ga.log from now on, `lines` first, and mask stderr: `redact` takes
    the keys out."""
    file = folder / "ga.log"
    logger = logging.getLogger("genericagent")
    if sys.stderr is not None:
        sys.stderr = MaskedStream(getattr(sys.stderr, "unmasked", sys.stderr), redact)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.exists() and file.stat().st_size > LARGEST:
            file.replace(folder / "ga.log.1")
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
        handler = logging.FileHandler(file, encoding="utf-8", errors="backslashreplace", delay=True)
    except OSError as error:
        logger.warning("no log: %s", error)  # a task matters more than its log
        return
    handler.setFormatter(_Masked("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s", redact))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    for line in lines:
        logger.info("%s", line)


def in_one_line(error: Exception, doing: str) -> str:
    """What the user is told of an error: an expected one in its own words; any other is a bug, with its traceback in the log."""
    if isinstance(error, GAError):
        return one_line(str(error), 500)
    logging.getLogger(__name__).error("cannot %s", doing, exc_info=error)
    what = one_line(f"{type(error).__name__}: {error}", 400)
    return say("bug", what=what, log=paths.shown(paths.logs() / "ga.log"))


class MaskedStream:
    """A text stream that shows no key, and a terminal no control codes: errors, tracebacks, what a plugin prints."""

    def __init__(self, stream: Any, redact: Callable[[str], str]) -> None:
        self.unmasked, self._redact = stream, redact

    def write(self, text: str) -> int:
        shown = self._redact(text)
        self.unmasked.write(clean(shown) if self.unmasked.isatty() else shown)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unmasked, name)


class _Masked(logging.Formatter):
    def __init__(self, form: str, redact: Callable[[str], str]) -> None:
        super().__init__(form)
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        return self._redact(super().format(record))
