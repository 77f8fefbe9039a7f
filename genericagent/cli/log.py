"""The program's diary in $GA_HOME/logs: model calls, retries, bugs with their traceback. Never a configured key."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from pathlib import Path

LARGEST = 2 << 20  # bytes; a larger one is set aside at the next start, one old one is kept


def start_log(folder: Path, secrets: Callable[[], Collection[str]]) -> None:
    """Write the log of "genericagent" into `folder`/ga.log from now on; `secrets()` are the values to leave out."""
    file = folder / "ga.log"
    logger = logging.getLogger("genericagent")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.exists() and file.stat().st_size > LARGEST:
            file.replace(folder / "ga.log.1")
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
        handler = logging.FileHandler(file, encoding="utf-8", delay=True)
    except OSError as error:
        logger.warning("no log: %s", error)  # a task matters more than its log
        return
    handler.setFormatter(_Masked("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s", secrets))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


class _Masked(logging.Formatter):
    def __init__(self, form: str, secrets: Callable[[], Collection[str]]) -> None:
        super().__init__(form)
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        for secret in self._secrets():
            text = text.replace(secret, "[a key]")
        return text
