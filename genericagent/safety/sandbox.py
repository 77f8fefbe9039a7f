"""What a script may do inside of bubblewrap (bwrap(1)): read most, write the workspace and temp, nothing else.

The recipe is a table of places, deepest last, so that what is put over a folder comes after it. Some things no mount can
forbid: a name that does not exist yet in a folder that is written. Those are looked at again after the call and set aside.
Not contained: with `net` the internet and loopback; reading of files that are no known secrets; covert channels; FIFOs of
host programs, and sockets whose path the kernel doesn't tell (bound to a relative name, renamed): opened, they answer.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .. import paths
from ..errors import ToolError
from .runs_later import Look, Memory, hold, let_go, look, marks, missing, put_back
from .syscalls import filter_fd, readable
from .zones import ARCHIVE, OWN_STEERING, Zones

EMPTY = Path(__file__).parents[1] / "py.typed"  # an empty file, put over what must not be read
SCRATCH = ("/tmp", "/var/tmp")  # empty in each call, and gone after it
HIDDEN = ("/run", "/var/run")  # sockets of the desktop, of docker, of agents that hold keys
RUN_NEEDED = ("/run/current-system", "/run/opengl-driver", "/run/wrappers")  # programs of NixOS
OWN_SHOWN = ("memory", "plugins", "reflect", "sche_tasks")  # of $GA_HOME, to be read
OWN_NAMES = ("mykey.py", "mykey.json")  # keys that lie beside the program
MOUNTS = 300  # places; what each costs grows with their number, and these together a quarter of a second
TOLD = 20  # names that a result tells of
TASKS = 1500  # folders of other tasks that can be hidden
CUT = "not everything here was guarded: there are more folders or protected names (git repositories …) than can be"

_UNSHARE = [
    "--unshare-user",
    "--disable-userns",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
]
_LAST = ["--cap-drop", "ALL", "--new-session", "--die-with-parent"]

_KEPT = (  # compiled when it is needed
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_\w+|TZ|TERM|COLORTERM|NO_COLOR|TMPDIR|VIRTUAL_ENV|PYTHONUTF8"
    r"|PYTHONIOENCODING|GA_CALL|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE|NODE_EXTRA_CA_CERTS"
    r"|(HTTPS?|ALL|FTP|NO)_PROXY|(https?|all|ftp|no)_proxy"
    r"|SYSTEMROOT|SYSTEMDRIVE|WINDIR|COMSPEC|PATHEXT|TEMP|TMP|USERPROFILE|APPDATA|LOCALAPPDATA|PROGRAMDATA"
    r"|PROGRAMFILES(\(X86\))?|NUMBER_OF_PROCESSORS|PROCESSOR_\w+|OS"
)


def sandbox_env(environ: Mapping[str, str], keep: Collection[str] = (), sandboxed: bool = True) -> dict[str, str]:
    """The allow-list for what runs in the sandbox or unattended; `keep` names additions by the user.

    A proxy whose address holds a password is left out. Sandboxed, what is temporary or cached goes to its own /tmp.
    """
    flags = re.IGNORECASE if os.name == "nt" else 0
    env = {
        name: value
        for name, value in environ.items()
        if name in keep or (re.fullmatch(_KEPT, name, flags) and not (name.lower().endswith("_proxy") and "@" in value))
    }
    return env | {"TMPDIR": "/tmp", "XDG_CACHE_HOME": "/tmp/.cache"} if sandboxed else env


@dataclass(frozen=True)
class Box:
    """A command line, the descriptors it needs, and, once it is over, what is to be told."""

    argv: list[str]
    fds: tuple[int, ...] = ()
    inside: bool = False
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Sandbox:
    """What one task may reach. `net`: the internet and loopback; `hide`: more real paths that must not be read, such as
    a config file elsewhere; `fixed`: real paths that must not be changed, such as a script we run again ourselves."""

    zones: Zones
    net: bool = True
    hide: tuple[Path, ...] = ()
    fixed: tuple[Path, ...] = ()
    memory: Memory = field(default_factory=Memory, compare=False, repr=False)  # of what was found here

    def options(self, cwd: Path, table: Mapping[Path, str], fds: Mapping[Path, int], seccomp: int = -1) -> list[str]:
        """bwrap's, for the places of `table`; `fds`: the folders that may be written, opened."""
        root = "--bind" if self.zones.workspace == Path("/") else "--ro-bind"
        line = [root, "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc"]  # core_pattern …
        for path, how in ((p, h) for p, h in table.items() if p != Path("/")):
            source = str(EMPTY) if how == "null" else str(path)
            mount = {"tmp": ["--tmpfs"], "empty": ["--tmpfs"], "closed": ["--perms", "0555", "--tmpfs"]}
            line += ["--bind-fd", str(fds[path])] if how == "rw" else mount.get(how, ["--ro-bind", source])
            line.append(str(path))
        for path in [path for path, how in table.items() if how == "empty"]:
            line += ["--remount-ro", str(path)]  # now that what is shown in it has its place
        line += [*_UNSHARE, *([] if self.net else ["--unshare-net"]), *_LAST, "--chdir", str(cwd)]
        return [*line, *(["--seccomp", str(seccomp)] if seccomp >= 0 else [])]

    def places(self, seen: Look, show: Collection[Path] = ()) -> dict[Path, str]:
        """Real path → "rw", "ro", "tmp" (empty, writable), "empty", "closed" or "null" (hidden: a folder that something is
        shown in, another, a file); parents first."""
        zones, found = self.zones, dict.fromkeys(_real(*SCRATCH), "tmp") | dict.fromkeys(_real(*HIDDEN), "empty")
        bases = [*found, zones.home]
        writable = [p for p in zones.writable if p.is_dir()]
        dns = _real("/etc/resolv.conf") if self.net else []
        venv = _real(os.environ.get("VIRTUAL_ENV") or sys.prefix)
        found |= {p: "ro" for p in [*_real(*RUN_NEEDED), *dns, *venv] if any(p.is_relative_to(b) for b in bases)}
        for path in (p for p in _program() if not any(found.get(parent) == "ro" for parent in p.parents)):
            if any(path.is_relative_to(b) for b in [*bases, *writable]) and not zones.workspace.is_relative_to(path):
                found[path] = "ro"
        found |= dict.fromkeys(writable, "rw")
        for real in seen.names.values():
            if len(found) < MOUNTS and self._open(real, found):
                found[real] = "ro"
                _pin(found, real)
        found |= {p: "ro" for p in _real(*show, *self.fixed, zones.home / "temp/_output")}
        found[zones.home] = "empty"
        found |= {p: "ro" for p in _real(*(zones.home / name for name in OWN_SHOWN))}
        secrets = [
            *zones.existing_secrets(),
            zones.home / ARCHIVE,
            *self.hide,
            *(paths.program().parent / name for name in OWN_NAMES),
        ]
        found |= {p: "closed" if p.is_dir() else "null" for p in [*_real(*secrets), *self._hideable()]}
        for path in [path for path, how in found.items() if how not in ("rw", "tmp")]:
            _pin(found, path)
        found |= {p: "null" for p in _sockets() if self._shown(p, found) in ("ro", "rw")}
        return dict(sorted(found.items(), key=lambda item: len(item[0].parts)))

    def others(self) -> list[Path]:
        """Other tasks' folders, with what steers them, and other conversations' requests. Raises OSError."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.zones.home / "temp") as entries:
            folders = [
                Path(e) for e in entries if e.is_dir(follow_symlinks=False) and (e.name == "_requests" or _task(e))
            ]
            return [path for path in folders if not self.zones.workspace.is_relative_to(path)]
        return []

    def _hideable(self) -> list[Path]:
        """Raises ToolError where what belongs to others cannot be hidden."""
        temp = self.zones.home / "temp"
        try:
            found = self.others()
        except OSError as error:
            raise ToolError(f"{temp} cannot be listed, so nothing was run: {error.strerror}") from error
        if len(found) > TASKS:
            raise ToolError(f"{temp} holds more than {TASKS} folders of tasks, so nothing was run: remove old ones")
        return found

    def look(self) -> Look:
        """The protected names that exist in what can be written, found at a bounded cost."""
        skip = {str(self.zones.home), str(self.zones.home / "temp/_output")}
        with contextlib.suppress(OSError):  # a script has closed the folder: the next call is refused
            skip |= set(map(str, self.others()))
        return look(self.zones.writable, skip, self.zones.user, self.memory)

    def _open(self, real: Path, table: Mapping[Path, str]) -> bool:
        """Whether it is there and can be changed; a whole workspace, which a link may lead to, has to."""
        return self._shown(real, table) == "rw" and real not in self.zones.writable and bool(_real(real))

    @staticmethod
    def _shown(path: Path, table: Mapping[Path, str]) -> str:
        """What of the table holds for a path; "ro" is the root."""
        return next((table[p] for p in (path, *path.parents) if p in table), "ro")

    @contextlib.contextmanager
    def around(self, argv: list[str], cwd: Path, show: Collection[Path] = ()) -> Iterator[Box]:
        """What is to be started, ready; afterwards what the call made under a protected name is set aside, and told.

        Raises ToolError where `cwd` is hidden, the workspace is this program's, or somebody has moved a folder meanwhile.
        Nothing may run in the box any more when the block ends.
        """
        cwd, zones = cwd.resolve(), self.zones
        if own_code(zones.workspace):
            raise ToolError(OWN_CODE.format(workspace=zones.workspace))
        with contextlib.ExitStack() as stack:
            seen = self.look()
            before, gits = marks(seen.names), set(seen.gits)
            for path in missing(seen, zones.writable, zones.user):
                with contextlib.suppress(OSError):  # what we cannot make the script cannot either, or it is seen later
                    stack.callback(let_go, path, hold(path))
                    seen.add(path)
            table = self.places(seen, show)
            if table.get(cwd) != "tmp" and self._shown(cwd, table) not in ("rw", "ro"):
                raise ToolError(f"the sandbox hides the folder {cwd}; use {zones.workspace} or one in it")
            fds = {path: _opened(path, stack) for path, how in table.items() if how == "rw" and path != Path("/")}
            others = [_closed_by(stack, fd) for fd in [filter_fd()] if fd >= 0]
            options = self.options(cwd, table, fds, *others)
            args = _closed_by(stack, readable(b"".join(os.fsencode(option) + b"\0" for option in options)))
            line = [_bubblewrap(zones) or "bwrap", "--args", str(args), "--", *argv]
            box = Box(line, (*fds.values(), *others, args), True)
            guarded = {p for p, real in seen.names.items() if p == real and self._shown(p, table) != "rw"}
            exposed = any(self._open(real, table) for real in seen.names.values())
            try:
                yield box
            finally:
                now = self.look()
                told = list(put_back(before, gits, guarded, now))
                box.notes.extend(told[:TOLD] + [f"and {len(told) - TOLD} more of the same kind"] * (len(told) > TOLD))
                box.notes.extend([CUT] * (exposed or seen.cut or now.cut))


OWN_CODE = "{workspace} is, or is in, the folder of this program, which no script may change: choose another workspace"


def own_code(workspace: Path) -> bool:
    """Whether the real path is, or is in, this program's own folder, whose modules run outside of any sandbox."""
    return workspace.is_relative_to(os.path.realpath(paths.program().parent))


@functools.cache
def why_not(sandbox: Sandbox) -> str:
    """Empty where the sandbox works, else why it does not and what to do, in one line. Runs the real recipe once."""
    import subprocess

    if own_code(sandbox.zones.workspace):
        return OWN_CODE.format(workspace=sandbox.zones.workspace)
    if sys.platform != "linux":
        return "there is no sandbox on this system: it needs bubblewrap, which is for Linux"
    if not _bubblewrap(sandbox.zones):
        return "bubblewrap is not installed: install the package bubblewrap (the program bwrap)"
    name = f".ga-probe-{os.urandom(6).hex()}"
    where = sandbox.zones.workspace
    where = where if sandbox.zones.of(where / name) == "workspace" else sandbox.zones.home / "temp"
    inside = where / name
    outside = [
        p / name
        for p in (sandbox.zones.user, sandbox.zones.home, Path("/"))
        if sandbox.zones.of(p) == "outside" or p == sandbox.zones.home
    ]
    script = ': >"$1" || exit 7; shift; for f; do (: >"$f") 2>/dev/null; done; exit 0'
    try:
        with sandbox.around(["/bin/sh", "-c", script, "sh", str(inside), *map(str, outside)], where) as box:
            done = subprocess.run(
                box.argv, pass_fds=box.fds, capture_output=True, stdin=subprocess.DEVNULL, timeout=20, check=False
            )
    except (OSError, ToolError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not run: {error}"
    worked, escaped = inside.exists(), [path for path in outside if path.exists()]
    for path in [inside, *escaped]:
        path.unlink(missing_ok=True)
    if done.returncode == 0 and worked and not escaped:
        return ""
    if escaped:  # as seen from here: its own /tmp may take what never arrives
        return "bubblewrap runs, but a write outside of the workspace was not stopped: don't rely on it here"
    said = " ".join(done.stderr.decode("utf-8", "replace").split())
    return f"bubblewrap does not work here: {said[:200] or f'exit {done.returncode}'}; {_advice(said)}"


def _advice(said: str) -> str:
    if "nknown option" in said:
        return "it is too old, 0.8 or later is needed"
    if re.search("namespace|uid map|Operation not permitted", said):
        return "the kernel, AppArmor or a container forbids user namespaces (kernel.apparmor_restrict_unprivileged_userns, user.max_user_namespaces)"
    return "see whether `bwrap --ro-bind / / --unshare-all true` works"


def _bubblewrap(zones: Zones) -> str:
    """The program as PATH has it, but not one that a script could have put there."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if not os.path.exists(f"{folder}/bwrap"):  # noqa: PTH110  # before what takes time
            continue
        program = Path(os.path.realpath(Path(folder, "bwrap")))
        ours = any(
            Path(folder).is_relative_to(w) or program.is_relative_to(w) for w in zones.writable if w != Path("/")
        )
        if Path(folder).is_absolute() and os.access(program, os.X_OK) and not ours:
            return str(program)
    return ""


def _real(*paths: str | Path) -> list[Path]:
    return [Path(os.path.realpath(path)) for path in paths if os.path.exists(path)]  # noqa: PTH110 - never raises


def _program() -> list[Path]:
    """This program and its Python, which must be there and must stay as they are."""
    installed = [path for path in sys.path if path.endswith("-packages")]  # also the user's own
    installed += [str(Path(os.__file__).parent), str(Path(sys.executable).parent)]
    prefixes: list[str | Path] = [paths.program().parent, sys.prefix, sys.base_prefix, *installed]
    return sorted({path for path in _real(*prefixes) if path != Path("/")})  # parents first


def _pin(table: dict[Path, str], path: Path) -> None:
    """Make a mount of each folder from a writable one down to the path: it cannot be moved away with what it holds."""
    above = list(itertools.takewhile(lambda parent: parent not in table, path.parents))
    if len(above) < len(path.parents) and table[path.parents[len(above)]] == "rw":
        table |= dict.fromkeys(above, "rw")


def _closed_by(stack: contextlib.ExitStack, fd: int) -> int:
    stack.callback(os.close, fd)
    return fd


def _opened(path: Path, stack: contextlib.ExitStack) -> int:
    """The very folder: were it named to bwrap, another call's script could put a link there that leads outside. (A link put
    where it is mounted mounts what is ours elsewhere, and what is ro there is not: only for what that script has made.)"""
    try:
        fd = _closed_by(stack, os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW))
        if os.readlink(f"/proc/self/fd/{fd}") == str(path):  # noqa: PTH115
            return fd
    except OSError:
        pass  # told below
    raise ToolError(f"{path} is no longer the folder that it was: it was moved or replaced, so nothing was run")


def _task(folder: os.DirEntry[str]) -> bool:
    """Whether it is the folder of a scripted task: one that is locked or was, and has what steers or tells of it."""
    names = (set(OWN_STEERING) - {".lock"}) | {"input.txt", "output.txt", "result.json"}
    lock, *others = (os.path.lexists(f"{folder.path}/{name}") for name in (".lock", *names))
    return lock and any(others)


def _sockets() -> Iterator[Path]:
    """Sockets with a path, which a read-only mount does not close (unix(7)); see proc_net_unix in proc(5)."""
    with contextlib.suppress(OSError):  # no /proc: then there is no bubblewrap either
        lines = Path("/proc/net/unix").read_text("utf-8", "surrogateescape").splitlines()[1:]
        names = {line.split(None, 7)[7] for line in lines if " /" in line}
        yield from _real(*sorted(name for name in names if name.startswith("/"))[:200])
