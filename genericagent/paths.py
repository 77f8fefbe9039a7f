"""Where shipped files are and where the user's things are; nobody else builds such a path."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Callable
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


def _bare(file: str | Path) -> str:
    return str(Path(os.path.realpath(file)).with_suffix(""))  # Windows calls ga.exe also without its ending


def this_program(anywhere: bool = False) -> str:
    """How the user calls this program again, from the folder that it was called in or from `anywhere`: `ga` only where the
    shell would find the one that runs."""
    called, ga = Path(sys.argv[0]), shutil.which("ga")
    if called.stem == "ga" and ga and _bare(ga) == _bare(called):
        return "ga"
    here = Path(os.devnull)  # nothing is below it: where the folder is gone, paths are whole
    with contextlib.suppress(OSError):
        here = Path.cwd()
    mine = called.absolute() if anywhere else called
    words = [mine] if called.stem == "ga" and called.exists() else [Path(sys.executable), program()]
    shown = [str(word.relative_to(here) if word.is_relative_to(here) and not anywhere else word) for word in words]
    if words[1:] and shutil.which("python") == sys.executable:
        shown[0] = "python"
    elif os.sep not in shown[0]:
        shown[0] = os.path.join(".", shown[0])  # noqa: PTH118  # a Path drops the dot
    return " ".join(map(shlex.quote, shown))


def expand(path: str) -> Path:
    """`~` and `~user` put in; a name that begins so and is nobody's is a name like any other."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  # Path's own raises


def home() -> Path:
    """The user's folder: `$GA_HOME`, else `~/.genericagent`. Read at every call, created by ensure_home()."""
    given = os.environ.get("GA_HOME")
    try:
        return Path(given).expanduser().resolve() if given else Path.home() / ".genericagent"
    except (RuntimeError, OSError) as error:  # no such user, or links in a circle
        raise ConfigError(f"GA_HOME={given} is no usable folder: {error}") from None


def ensure_home() -> list[str]:
    """Create it, for the user's eyes only; one that others could enter is closed. Returns lines for the user about
    that. Raises ConfigError where there is none and none can be made."""
    try:
        home().mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot create {home()} ({error.strerror}): set GA_HOME to a folder that can be written"
        ) from None
    return keep_private(home(), 0o700)


def keep_private(path: Path, mode: int, warn: Callable[[str], None] = lambda line: None) -> list[str]:
    """Take the rights of group and others from what is ours; `mode` is what may stay. Returns a line when something
    was changed; `warn` gets one when it cannot be. Left alone: shared folders (sticky), the user's home and what is
    above it. Without POSIX permissions nothing is done."""
    if os.name != "posix":
        return []
    try:
        real = path.resolve()
        before = real.stat()
        if not before.st_mode & 0o077:
            return []
        own = Path.home().resolve()
        shared = before.st_mode & stat.S_ISVTX or stat.S_ISDIR(before.st_mode) and real in (own, *own.parents)
        if (
            shared
            or before.st_uid != os.geteuid()
            or (stat.S_ISREG(before.st_mode) and real.parent != path.parent.resolve())
        ):
            raise PermissionError("not only ours")
        real.chmod(stat.S_IMODE(before.st_mode) & ~0o077 & (mode | 0o7000))
    except (OSError, RuntimeError):
        for line in others_can_read(path):
            warn(line)
        return []
    return [f"{path} could be read by others: now {mode:04o}"]


def others_can_read(path: Path) -> list[str]:
    """A warning when others may read a file with keys in it."""
    try:
        open_ = os.name == "posix" and path.stat().st_mode & 0o077
    except OSError:
        return []  # gone meanwhile
    return [f"{path} holds a key and can be read by others: chmod 600 {path}"] if open_ else []


def faces() -> Path:
    """What the faces beside the terminal keep."""
    return home() / "faces"


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


def pairing(base: Path | None = None) -> Path:
    """The secret that the browser's extension and we prove to each other, of this home or of another."""
    return (base or home()) / "browser" / "secret"


def archive() -> Path:
    """Finished sessions, packed: layer L4 of the memory."""
    return memory() / "L4_raw_sessions"


def logs() -> Path:
    return home() / "logs"


def task_dir(name: str) -> Path:
    """The folder of a scripted task."""
    return temp() / name


def shown(path: Path | str) -> str:
    """A path for a person: `~` for the user's own folder."""
    home, text = str(Path.home()), str(path)
    return "~" + text.removeprefix(home) if text == home or text.startswith(home + os.sep) else text
