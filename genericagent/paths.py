"""Where shipped files are and where the user's things are; nobody else builds such a path."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import ConfigError

_PACKAGE = Path(__file__).resolve().parent


def shipped(*parts: str) -> Path:
    """A file or folder that comes with the program, from a checkout or from an installed wheel."""
    inside = _PACKAGE / "_shipped"
    return (inside if inside.is_dir() else _PACKAGE.parent).joinpath(*parts)


def program() -> Path:
    """The script that starts this program again: agentmain.py of the checkout or of the wheel."""
    return _PACKAGE.parent / "agentmain.py"


def home() -> Path:
    """The user's folder: `$GA_HOME`, else `~/.genericagent`. Read at every call, created by ensure_home()."""
    given = os.environ.get("GA_HOME")
    try:
        return Path(given).expanduser().resolve() if given else Path.home() / ".genericagent"
    except (RuntimeError, OSError) as error:  # no such user, or links in a circle
        raise ConfigError(f"GA_HOME={given} is no usable folder: {error}") from None


def ensure_home() -> None:
    """Create it, for the user's eyes only. Raises ConfigError where that is impossible."""
    try:
        home().mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot create {home()} ({error.strerror}): set GA_HOME to a folder that can be written"
        ) from None


def temp() -> Path:
    """The agent's default working directory; `../memory` is its memory from there."""
    return home() / "temp"


def outputs() -> Path:
    """What was too long for the context: scripts' output, shortened results. Removed after a week."""
    return temp() / "_output"


def memory() -> Path:
    return home() / "memory"


def sessions() -> Path:
    return home() / "sessions"


def logs() -> Path:
    return home() / "logs"


def task_dir(name: str) -> Path:
    """The folder of a scripted task."""
    return temp() / name
