"""No path, link or swap leads the file tools of a confined run out of the workspace, or to a secret."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from genericagent.errors import ToolError
from genericagent.safety import confine
from genericagent.safety.confine import Confinement
from genericagent.safety.zones import Zones
from genericagent.store import atomic
from genericagent.tools import images
from genericagent.tools.files import expand_file_refs, file_patch, file_read, file_write

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc and its tricks")
OLD, EVIL, SECRET = "old\nline\n", "evil\n", "canary-7f3a91"
PNG = b"\x89PNG\r\n\x1a\n" + SECRET.encode()


@dataclass
class World:
    base: Path
    ws: Path
    out: Path
    user: Path
    home: Path

    @property
    def within(self) -> Confinement:
        return Confinement(Zones(self.ws, self.home, self.user))

    @property
    def victim(self) -> Path:
        return self.out / "victim"

    def outside(self) -> dict[str, Any]:
        """All that a confined run must leave alone: kind, mode, links and bytes."""
        seen: dict[str, Any] = {}
        free = [self.ws, self.home / "temp", self.home / "memory", self.home / "locks"]
        for top, folders, names in os.walk(self.base):
            kept = [name for name in folders if Path(top, name) not in free or Path(top, name).is_symlink()]
            seen |= {str(p): _state(p) for p in (Path(top, name) for name in (*kept, *names))}
            folders[:] = kept
        return seen

    def guarded(self) -> dict[str, Any]:
        """What is protected inside too."""
        return {str(p): _state(p) for name in (".git/hooks", ".git", ".") for p in sorted((self.ws / name).glob("*"))
                if self.within.zones.protected(p)}  # fmt: skip


def _state(path: Path) -> tuple[Any, ...]:
    info = path.lstat()
    if stat.S_ISLNK(info.st_mode):
        return ("link", str(path.readlink()))
    return info.st_mode, path.read_bytes() if stat.S_ISREG(info.st_mode) else None


@pytest.fixture
def w(tmp_path: Path, ga_home: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    user = tmp_path / "user"
    world = World(tmp_path, tmp_path / "ws", tmp_path / "out", user, user / ".genericagent")
    for folder in (world.ws / "sub", world.ws / ".git/hooks", world.out / "sub", user / ".ssh", world.home / "temp",
                   world.home / "memory", world.home / "sessions", world.home / "plugins", user / ".config/gh"):  # fmt: skip
        folder.mkdir(parents=True)
    world.victim.write_text(OLD)
    for path in (world.ws / "f", world.ws / ".envrc", world.ws / ".git/config", world.ws / ".git/hooks/pre-commit"):
        path.write_text(OLD)
    for path in (user / ".ssh/id_rsa", world.home / "config.toml", world.home / "mykey.py", user / ".netrc",
                 world.home / "sessions/s.jsonl", user / ".config/gh/hosts.yml"):  # fmt: skip
        path.write_text(f"{SECRET}\nold\n")
    monkeypatch.setenv("GA_HOME", str(world.home))
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.chdir(world.ws)
    return world


def link(path: Path, target: Path | str, folder: bool = False) -> Path:
    path.symlink_to(target, folder)
    return path


Write = Callable[[Path, "Confinement | None"], object]
WRITES: dict[str, Write] = {
    "overwrite": lambda p, c: file_write(p, EVIL, within=c),
    "append": lambda p, c: file_write(p, EVIL, "append", within=c),
    "prepend": lambda p, c: file_write(p, EVIL, "prepend", within=c),
    "patch": lambda p, c: file_patch(p, "old", "evil", within=c),
    "atomic": lambda p, c: atomic.write_bytes(p, EVIL.encode(), within=c),
}
READS: dict[str, Write] = {
    "read": lambda p, c: file_read(p, within=c),
    "keyword": lambda p, c: file_read(p, keyword="canary", within=c),
    "reference": lambda p, c: expand_file_refs(f"{{{{file:{p}:1:1}}}}", Path("/"), within=c),
    "picture": lambda p, c: images.image_block(p, False, within=c),
}

# ways to what is outside


def chain(w: World) -> Path:
    last = link(w.ws / "link0", w.victim)
    for n in range(1, 12):
        last = link(w.ws / f"link{n}", last.name)
    return last


def hard(w: World) -> Path:
    os.link(w.victim, w.ws / "hard")
    return w.ws / "hard"


def held(w: World, path: Path, flags: int = os.O_RDWR) -> int:
    return os.open(path, flags)  # closed by the fixture `held_open`


Trick = Callable[[World], Path]
OUT: dict[str, Trick] = {
    "absolute": lambda w: w.victim,
    "dots in front": lambda w: Path("../out/victim"),
    "dots in the middle": lambda w: w.ws / "sub/../../out/victim",
    "dots and dots": lambda w: w.ws / "./sub/.././../out/./victim",
    "dots after a link": lambda w: link(w.ws / "l", w.out / "sub") / "../victim",
    "dots after links in a row": lambda w: link(w.ws / "l2", link(w.ws / "l", w.out / "sub")) / "../sub/../victim",
    "dots at the end of a link": lambda w: link(w.ws / "l", w.out / "sub/..") / "victim",
    "a linked file": lambda w: link(w.ws / "l", w.victim),
    "a file linked relatively": lambda w: link(w.ws / "l", "../out/victim"),
    "a file linked with dots": lambda w: link(w.ws / "l", "sub/../../out/victim"),
    "a linked folder": lambda w: link(w.ws / "l", w.out) / "victim",
    "a folder linked relatively": lambda w: link(w.ws / "sub/l", "../../out") / "victim",
    "a chain of links": chain,
    "a link in a linked folder": lambda w: link(w.ws / "l", link(w.ws / "m", w.out).parent / "m") / "victim",
    "a link out and back and out": lambda w: link(link(w.ws / "l", w.out) / "back", w.ws) / "../out/victim",
    "a hard link": hard,
    "a link to a hard link": lambda w: link(w.ws / "l", hard(w)),
    "a slash at the end": lambda w: Path(f"{link(w.ws / 'l', w.victim)}/"),
    "a dot at the end": lambda w: Path(f"{link(w.ws / 'l', w.victim)}/."),
    "two slashes": lambda w: Path(f"/{w.victim}"),
    "home": lambda w: Path("~/../out/victim").expanduser(),
    "/proc/self/root": lambda w: Path(f"/proc/self/root{w.victim}"),
    "/proc/self/root twice": lambda w: Path(f"/proc/self/root/proc/self/root{w.victim}"),
    "/proc/self/cwd": lambda w: Path("/proc/self/cwd/../out/victim"),
    "/proc of the pid": lambda w: Path(f"/proc/{os.getpid()}/root{w.victim}"),
    "/proc of another pid": lambda w: Path(f"/proc/{os.getppid()}/root{w.victim}"),
    "/proc/thread-self": lambda w: Path(f"/proc/thread-self/root{w.victim}"),
    "an open file": lambda w: Path(f"/proc/self/fd/{held(w, w.victim)}"),
    "an open folder": lambda w: Path(f"/proc/self/fd/{held(w, w.out, os.O_RDONLY)}/victim"),
    "/dev/fd": lambda w: Path(f"/dev/fd/{held(w, w.victim)}"),
    "/dev/fd of a folder": lambda w: Path(f"/dev/fd/{held(w, w.out, os.O_RDONLY)}/victim"),
    "a link into /proc": lambda w: link(w.ws / "l", f"/proc/self/root{w.out}") / "victim",
}
NEW: dict[str, Trick] = {
    "a new file": lambda w: w.out / "new",
    "a new file beside": lambda w: Path("../new"),
    "new folders": lambda w: w.out / "a/b/c/new",
    "new folders below a link": lambda w: link(w.ws / "l", w.out) / "a/b/new",
    "new folders below dots": lambda w: w.ws / "sub/../../out/a/new",
    "a folder that begins alike": lambda w: w.base / "ws-2/new",
    "the workspace in capitals": lambda w: w.base / "WS/new",
    "temp in capitals": lambda w: w.home / "TEMP/new",
    "of our home: a plugin": lambda w: w.home / "plugins/new.py",
    "a plugin by a link": lambda w: link(w.ws / "l", w.home / "plugins") / "new.py",
    "a plugin by dots": lambda w: w.home / "temp/../plugins/new.py",
    "a watcher": lambda w: w.home / "reflect/new.py",
    "a scheduled task": lambda w: w.home / "sche_tasks/new.json",
    "the extension": lambda w: w.home / "extension/background.js",
    "another configuration": lambda w: w.home / "mykey.json",
    "a session": lambda w: w.home / "sessions/new.jsonl",
    "a lock": lambda w: w.home / "locks.d/x",
    "our home": lambda w: w.home / "new",
    "keys for others": lambda w: w.user / ".ssh/authorized_keys",
    "shell start file": lambda w: w.user / ".profile",
    "autostart": lambda w: w.user / ".config/autostart/x.desktop",
}


@pytest.fixture
def held_open(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    opened: list[int] = []

    def hold(w: World, path: Path, flags: int = os.O_RDWR) -> int:
        opened.append(os.open(path, flags))
        return opened[-1]

    monkeypatch.setitem(globals(), "held", hold)
    yield
    for fd in opened:
        os.close(fd)


@pytest.mark.usefixtures("held_open")
@pytest.mark.parametrize("way", WRITES)
@pytest.mark.parametrize("trick", OUT)
def test_no_trick_writes_to_a_file_outside(w: World, trick: str, way: str) -> None:
    path = OUT[trick](w)
    before = w.outside()
    with pytest.raises(ToolError) as refused:
        WRITES[way](path, w.within)
    assert w.outside() == before and "\n" not in str(refused.value)
    WRITES[way](path, None)  # the control: without confinement the trick works
    assert "evil" in w.victim.read_text()


@pytest.mark.parametrize("way", ["overwrite", "append", "prepend"])
@pytest.mark.parametrize("trick", NEW)
def test_no_trick_makes_a_file_or_folder_outside(w: World, trick: str, way: str) -> None:
    path = NEW[trick](w)
    before = w.outside()
    with pytest.raises(ToolError, match="outside the workspace|is protected|holds credentials"):
        WRITES[way](path, w.within)
    with pytest.raises(ToolError):
        WRITES["atomic"](path, w.within)
    assert w.outside() == before
    WRITES[way](path, None)
    assert path.exists() and w.outside() != before


# what may not be written inside


INSIDE: dict[str, Trick] = {
    "a hook": lambda w: w.ws / ".git/hooks/pre-commit",
    "a new hook": lambda w: w.ws / ".git/hooks/post-checkout",
    "a hook of a new repository": lambda w: w.ws / "sub/.git/hooks/post-checkout",
    "the settings of git": lambda w: w.ws / ".git/config",
    "of git in capitals": lambda w: w.ws / ".GIT/Config",
    "a hook in capitals": lambda w: w.ws / ".git/HOOKS/pre-commit",
    "direnv": lambda w: w.ws / ".envrc",
    "direnv in capitals": lambda w: w.ws / ".ENVRC",
    "direnv below": lambda w: w.ws / "sub/deep/.envrc",
    "direnv with a slash": lambda w: Path(f"{w.ws}/.envrc/"),
    "direnv by dots": lambda w: w.ws / "sub/../.envrc",
    "direnv by a link": lambda w: link(w.ws / "l", ".envrc"),
    "a hook by a linked folder": lambda w: link(w.ws / "l", ".git/hooks") / "pre-commit",
    "a hook by a new file in a linked folder": lambda w: link(w.ws / "l", ".git/hooks") / "new",
    "git by a linked folder": lambda w: link(w.ws / "l", ".git") / "config",
    "characters nobody sees": lambda w: w.ws / ".g\u200cit/config",
    "a soft hyphen": lambda w: w.ws / ".env\u00adrc",
    "a joiner": lambda w: w.ws / ".bash\u034frc",
    "a long s": lambda w: w.ws / ".ba\u017fhrc",
    "a Kelvin sign": lambda w: w.ws / ".git/hoo\u212as/x",
    "a ligature": lambda w: w.ws / ".git/con\ufb01g",
    "shell start": lambda w: w.ws / ".zshrc",
    "a protected name as a folder": lambda w: w.ws / ".envrc.d/../.bashrc/x",
    "/proc/self/cwd": lambda w: Path("/proc/self/cwd/.envrc"),
    "in memory": lambda w: w.home / "memory/.git/hooks/post-commit",
    "in temp": lambda w: w.home / "temp/.envrc",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("way", WRITES)
@pytest.mark.parametrize("trick", INSIDE)
def test_what_runs_later_by_itself_is_not_written(w: World, trick: str, way: str) -> None:
    path = INSIDE[trick](w)
    before, names = w.guarded(), sorted(p for folder in (w.ws, w.home) for p in folder.rglob("*"))
    with pytest.raises(ToolError):
        WRITES[way](path, w.within)
    kept = sorted(p for folder in (w.ws, w.home) for p in folder.rglob("*") if "locks" not in p.parts)
    assert w.guarded() == before and kept == names
    file_write(w.ws / "sub" / "fine", EVIL, within=w.within)  # and it is not that nothing can be written


def test_a_protected_name_that_is_a_link_protects_what_it_leads_to(w: World) -> None:
    target = w.ws / "env.txt"
    (w.ws / ".envrc").rename(target)
    link(w.ws / ".envrc", "env.txt")
    (w.ws / "hooks").mkdir()
    (w.ws / ".git/hooks/pre-commit").unlink()
    (w.ws / ".git/hooks").rmdir()
    link(w.ws / ".git/hooks", "../hooks")
    link(w.user / ".bashrc", w.ws / "bashrc").write_text(OLD)
    paths = (w.ws / ".envrc", target, w.ws / ".git/hooks/new", w.ws / "hooks/new", w.user / ".bashrc", w.ws / "bashrc")
    for path in paths:
        for write in WRITES.values():
            with pytest.raises(ToolError):
                write(path, w.within)
    assert target.read_text() == (w.ws / "bashrc").read_text() == OLD and not list((w.ws / "hooks").iterdir())


def test_literal_names_that_only_look_like_ways_out_stay_inside(w: World) -> None:
    before = w.outside()
    names = ("%2e%2e/%2e%2e/out/victim", "\u2025/out/victim", "\uff0e\uff0e/out/victim", "..\\..\\out\\victim", "~/x", "~root/x",
             "$HOME/x", "a\nb", ".. /x", "... /x", "../ws/x", "sub/../y", "caf\u00e9", "cafe\u0301", " ", "\u2215etc\u2215x",
             ".gitignore", ".git-hooks/x", ".envrc.example", "file:///x", "sub/.git/info/x")  # fmt: skip
    for name in names:
        for way in ("overwrite", "append", "prepend"):
            WRITES[way](w.ws / name, w.within)
        assert (w.ws / name).read_text().count("evil") == 3
        file_patch(w.ws / name, "evil\nevil\nevil\n", "good\n", within=w.within)
        assert "good" in file_read(w.ws / name, within=w.within)
    for path in (w.home / "temp/a/b/x", w.home / "memory/notes.md"):
        file_write(path, EVIL, within=w.within)
    assert w.outside() == before


@pytest.mark.usefixtures("held_open")
def test_what_is_no_ordinary_file_is_refused_at_once(w: World) -> None:
    os.mkfifo(w.ws / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        odd = [w.ws / "pipe", w.ws / "socket", w.ws / "sub", w.ws, w.ws / "sub/..", Path("/"), Path(".."), Path("/dev/null"),
               Path("/dev/zero"), Path("/dev/tty"), w.ws / ("x" * 300), w.ws / ("d/" * 3000 + "f"),
               w.ws / "a\0b", w.ws / "a\0/../../out/victim", w.ws / "f/below", link(w.ws / "loop", "loop"), w.ws / "loop/x",
               link(w.ws / "to-device", "/dev/null"), link(w.ws / "dangling", "../out/none"), link(w.ws / "gone", "../out/none/d") / "x",
               link(w.ws / "inside", "none"), link(w.ws / "to-pipe", "pipe"), w.ws / "missing/../../out/victim"]  # fmt: skip
        before, names = w.outside(), sorted(w.ws.rglob("*"))
        streams = [Path("/dev/stdout"), Path("/dev/stderr"), Path("/dev/fd/1"), Path("/proc/self/fd/2")]  # maybe files
        for path in odd + streams:
            for act in (*WRITES.values(), READS["read"], READS["picture"]):
                with pytest.raises(ToolError):
                    act(path, w.within)
                assert not images.is_image(path, within=w.within)
        assert w.outside() == before and sorted(w.ws.rglob("*")) == names


# secrets


def copy_of(w: World, path: Path) -> Path:
    os.link(path, w.ws / "hard")
    return w.ws / "hard"


def dotfiles(w: World) -> Path:
    (w.user / ".ssh").rename(w.ws / "ssh")
    link(w.user / ".ssh", w.ws / "ssh")
    return w.ws / "ssh/id_rsa"


def archived(w: World) -> Path:
    (w.home / "memory/L4_raw_sessions").mkdir()
    (w.home / "memory/L4_raw_sessions/s.jsonl.gz").write_text(f"{SECRET}\n")
    return w.home / "memory/L4_raw_sessions"


HIDDEN: dict[str, Trick] = {
    "a key": lambda w: w.user / ".ssh/id_rsa",
    "by dots": lambda w: w.ws / "../user/.ssh/../.ssh/id_rsa",
    "by a link": lambda w: link(w.ws / "l", w.user / ".ssh/id_rsa"),
    "by a linked folder": lambda w: link(w.ws / "l", w.user / ".ssh") / "id_rsa",
    "by a linked home": lambda w: link(w.ws / "l", w.user) / ".ssh/id_rsa",
    "by a chain": lambda w: link(w.ws / "l2", link(w.ws / "l", "../user/.ssh/id_rsa").name),
    "by a hard link": lambda w: copy_of(w, w.user / ".ssh/id_rsa"),
    "by a hard link to a single file": lambda w: copy_of(w, w.user / ".netrc"),
    "by a hard link to our own": lambda w: copy_of(w, w.home / "config.toml"),
    "by a link to a hard link": lambda w: link(w.ws / "l", copy_of(w, w.home / "sessions/s.jsonl")),
    "by /proc/self/root": lambda w: Path(f"/proc/self/root{w.user}/.ssh/id_rsa"),
    "by /proc/self/cwd": lambda w: Path("/proc/self/cwd/../user/.netrc"),
    "by an open file": lambda w: Path(f"/dev/fd/{held(w, w.user / '.ssh/id_rsa', os.O_RDONLY)}"),
    "by an open folder": lambda w: Path(f"/proc/self/fd/{held(w, w.user / '.ssh', os.O_RDONLY)}/id_rsa"),
    "where a linked folder leads to": dotfiles,
    "where the link itself is": lambda w: dotfiles(w) and w.user / ".ssh/id_rsa",
    "a link in a hidden folder": lambda w: link(w.user / ".ssh/other", w.victim),
    "a folder linked in a hidden folder": lambda w: link(w.user / ".ssh/d", w.out) / "victim",
    "a single file": lambda w: w.user / ".netrc",
    "deeper": lambda w: w.user / ".config/gh/hosts.yml",
    "our configuration": lambda w: w.home / "config.toml",
    "our keys": lambda w: w.home / "mykey.py",
    "our keys by dots": lambda w: w.home / "temp/../mykey.py",
    "another conversation": lambda w: w.home / "sessions/s.jsonl",
    "an archived conversation": lambda w: archived(w) / "../L4_raw_sessions/s.jsonl.gz",
}


@pytest.mark.slow
@pytest.mark.usefixtures("held_open")
@pytest.mark.parametrize("way", READS)
@pytest.mark.parametrize("trick", HIDDEN)
def test_no_trick_reads_a_secret(w: World, trick: str, way: str) -> None:
    w.victim.write_text(f"{SECRET}\n")
    path = HIDDEN[trick](w)
    with pytest.raises(ToolError, match="holds credentials and is not read or written in this run") as refused:
        READS[way](path, w.within)
    assert SECRET not in str(refused.value)
    for write in WRITES.values():
        with pytest.raises(ToolError) as refused:
            write(path, w.within)
        assert SECRET not in str(refused.value)
    if way != "picture":
        assert SECRET in str(READS[way](path, None))  # the control


def test_a_picture_among_the_keys_is_not_shown(w: World) -> None:
    (w.user / ".ssh/photo.png").write_bytes(PNG)
    path = link(w.ws / "p.png", w.user / ".ssh/photo.png")
    assert images.is_image(path) and not images.is_image(path, within=w.within)
    with pytest.raises(ToolError, match="holds credentials"):
        images.image_block(path, within=w.within)


def test_names_in_a_hidden_folder_are_not_listed(w: World) -> None:
    for path in (
        w.user / ".ssh",
        w.user / ".ssh/nope",
        link(w.ws / "l", w.user / ".ssh"),
        w.ws / "l/nope",
        w.home / "sessions",
    ):
        with pytest.raises(ToolError, match="holds credentials") as refused:
            file_read(path, within=w.within)
        assert "id_rsa" not in str(refused.value) and "s.jsonl" not in str(refused.value)
    with pytest.raises(ToolError, match="id_rsa"):
        file_read(w.user / ".ssh")


@pytest.mark.parametrize("ref", ["~/.ssh/id_rsa", "../user/.netrc", "/proc/self/environ", "~/.genericagent/mykey.py"])
def test_a_reference_brings_no_secret_into_a_file(w: World, ref: str) -> None:
    text = f"a {{{{file:{ref}:1:1}}}} b"
    with pytest.raises(ToolError, match="holds credentials"):
        expand_file_refs(text, w.ws, within=w.within)
    assert expand_file_refs("{{file:f:1:1}}", w.ws, within=w.within) == "old"
    assert (
        expand_file_refs("{{file:../out/victim:1:1}}", w.ws, within=w.within) == "old"
    )  # reading is not confined to it


@pytest.mark.parametrize("name", ["environ", "mem", "maps", "cmdline", "task/{}/environ", "../thread-self/environ"])
def test_what_processes_hold_is_not_read(w: World, name: str) -> None:
    for pid in ("self", os.getpid(), os.getppid()):
        for path in (
            Path(f"/proc/{pid}", name.format(pid if pid != "self" else os.getpid())),
            link(w.ws / f"l{pid}", f"/proc/{pid}"),
        ):
            asked = path if path.is_relative_to("/proc") else path / name.format(pid if pid != "self" else os.getpid())
            with pytest.raises(ToolError):
                file_read(asked, within=w.within)


def test_ordinary_files_with_two_names_are_read(w: World) -> None:
    os.link(w.ws / "f", w.ws / "g")
    assert "old" in file_read(w.ws / "g", within=w.within)
    with pytest.raises(ToolError, match="other names"):
        file_write(w.ws / "g", EVIL, within=w.within)
    file_write(w.ws / "g", EVIL)
    assert (w.ws / "f").read_text() == EVIL


def test_what_somebody_allowed_is_written_and_nothing_else_with_it(w: World) -> None:
    said = [w.victim, w.out / "a/b/new", w.ws / ".envrc", w.user / ".bashrc", w.home / "plugins/x.py"]
    zones = Zones(w.ws, w.home, w.user)
    for path in said:
        within = Confinement(zones, (str(path),))
        for name in ("overwrite", "append", "prepend", "atomic"):
            WRITES[name](path, within)
        assert "evil" in path.read_text()
        for other in (w.out / "other", w.out / "a/b/other", w.ws / ".git/config", w.home / "plugins/y.py", path / "x"):
            with pytest.raises(ToolError):
                WRITES["overwrite"](other, within)
    by_link = link(w.ws / "l", w.victim)
    file_write(by_link, EVIL, within=Confinement(zones, (str(w.victim),)))
    with pytest.raises(ToolError, match="outside the workspace"):
        file_write(by_link, EVIL, within=Confinement(zones, (str(by_link),)))
    (w.ws / ".envrc").rename(w.ws / "env.txt")
    link(w.ws / ".envrc", "env.txt")  # what was said about an ordinary file is not said about what the name is for
    with pytest.raises(ToolError, match="is protected"):
        file_write(w.ws / ".envrc", EVIL, within=Confinement(zones, (str(w.ws / "env.txt"),)))
    link(w.user / ".zshrc", w.out / "zshrc").write_text(OLD)
    file_write(w.user / ".zshrc", EVIL, within=Confinement(zones, (str(w.out / "zshrc"),)))
    file_write(
        link(w.out / "in", w.ws / "f"), EVIL, within=w.within
    )  # where a name lies is nothing, where it leads all
    assert (w.out / "zshrc").read_text() == (w.ws / "f").read_text() == EVIL
    for path in (w.user / ".ssh/id_rsa", w.home / "config.toml"):
        with pytest.raises(ToolError, match="holds credentials"):
            file_write(path, EVIL, within=Confinement(zones, (str(path),)))


# odd places


def test_a_workspace_that_is_a_link_is_where_it_leads_to(w: World) -> None:
    alias = link(w.base / "alias", w.ws)
    file_write(alias / "new/x", EVIL, within=w.within)
    assert (w.ws / "new/x").read_text() == EVIL
    for path in (alias / "../out/victim", alias / ".envrc", link(w.ws / "l", alias / "../out") / "victim"):
        with pytest.raises(ToolError):
            file_write(path, EVIL, within=w.within)
    assert w.victim.read_text() == OLD


def test_of_our_home_inside_the_workspace_only_temp_and_memory_are_written(w: World) -> None:
    for workspace in (w.user, w.home, w.base):
        within = Confinement(Zones(workspace, w.home, w.user))
        for name in ("config.toml", "mykey.py", "sessions/s.jsonl", "plugins/x.py", "sche_tasks/x", "CONFIG.toml", "x", "locks/x",
                     "memory/L4_raw_sessions/x", "memory/l4_RAW_sessions/x", "../.ssh/authorized_keys", "../.bashrc", "temp/../plugins/x.py", "Plugins/x.py"):  # fmt: skip
            for write in WRITES.values():
                with pytest.raises(ToolError):
                    write(w.home / name, within)
        file_write(w.home / "temp/x", EVIL, within=within)
        file_write(w.home / "memory/x", EVIL, within=within)
    file_write(w.user / "notes.txt", EVIL, within=Confinement(Zones(w.user, w.home, w.user)))
    assert (w.home / "config.toml").read_text().startswith(SECRET) and not (w.home / "plugins/x.py").exists()


def test_a_workspace_inside_hooks_cannot_be_written(w: World) -> None:
    for inside in (".git/hooks", ".git/hooks/deep"):
        (w.ws / inside).mkdir(exist_ok=True)
        with pytest.raises(ToolError, match="is protected"):
            file_write(w.ws / inside / "x", EVIL, within=Confinement(Zones(w.ws / inside, w.home, w.user)))
    git = Confinement(Zones(w.ws / ".git", w.home, w.user))
    file_write(w.ws / ".git/description", EVIL, within=git)
    with pytest.raises(ToolError, match="is protected"):
        file_write(w.ws / ".git/config", EVIL, within=git)


def test_memory_that_leads_outside_is_outside(w: World) -> None:
    for name in ("memory", "temp"):
        (w.home / name).rmdir()
        link(w.home / name, w.out)
        before = w.outside()
        for path in (w.home / name / "victim", w.home / name / "new", w.home / name / "a/b"):
            with pytest.raises(ToolError, match="outside the workspace"):
                file_write(path, EVIL, within=w.within)
        assert w.outside() == before
        file_write(w.home / name / "new", EVIL)
        assert (w.out / "new").exists()
        (w.out / "new").unlink()


def test_an_edit_makes_its_lock_in_our_home_and_nowhere_else(w: World) -> None:
    before = w.outside()
    for path in (w.victim, link(w.ws / "l", w.victim), w.ws / "f"):
        with contextlib.suppress(ToolError):
            file_write(path, EVIL, within=w.within)
    assert w.outside() == before | {str(w.home / "locks"): _state(w.home / "locks")} or w.outside() == before
    assert all(p.suffix == ".lock" for p in (w.home / "locks").iterdir())


# swapped between check and use

CALLS = ("open", "stat", "lstat", "fstat", "readlink", "mkdir", "replace", "chmod", "fsync")


class At:
    """Does something once, right before the nth call into the kernel."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nth: int, act: Callable[[], object]) -> None:
        self.left, self.act, self.seen = nth, act, ""
        for name in CALLS:
            monkeypatch.setattr(os, name, self._before(name, getattr(os, name)))

    def _before(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                self.seen = name
                self.act()
            return real(*args, **named)

        return call


def to_link(path: Path, target: Path) -> None:
    path.rename(path.with_name("was"))
    path.symlink_to(target)


def to_hard_link(path: Path, target: Path) -> None:
    path.rename(path.with_name("was"))
    path.hardlink_to(target)


SWAPS: dict[str, tuple[str, Callable[[World], object]]] = {
    "the folder for a link": ("d/f", lambda w: to_link(w.ws / "d", w.out)),
    "the folder above for a link": ("d/e/f", lambda w: to_link(w.ws / "d", w.out)),
    "the folder for one to hooks": ("d/f", lambda w: to_link(w.ws / "d", w.ws / ".git/hooks")),
    "the file for a link": ("d/f", lambda w: to_link(w.ws / "d/f", w.victim)),
    "the file for a hard link": ("d/f", lambda w: to_hard_link(w.ws / "d/f", w.victim)),
    "the new folder for a link": ("d/new/f", lambda w: link(w.ws / "d/new", w.out)),
    "the new folder above for a link": ("d/new/deep/f", lambda w: link(w.ws / "d/new", w.out)),
    "the new file for a link": ("d/fresh", lambda w: link(w.ws / "d/fresh", w.victim)),
}


def every_swap(w: World, swap: str, write: Callable[[Path], object]) -> Iterator[tuple[bool, bool]]:
    """(whether it was told, whether something outside has changed) of the write with the swap before each call in turn."""
    name, act = SWAPS[swap]
    (w.out / "e").mkdir()
    hook = w.ws / ".git/hooks/f"
    for nth in range(1, 500):
        (w.ws / "d/e").mkdir(parents=True)
        for path in (w.ws / "d/f", w.ws / "d/e/f", w.out / "f", w.out / "e/f", w.victim, hook):
            path.write_text(OLD)
        before, told = (w.outside(), w.guarded(), _state(hook)), False
        with pytest.MonkeyPatch.context() as patch:
            at = At(patch, nth, lambda: act(w))
            try:
                write(w.ws / name)
            except ToolError:
                told = True
        yield told, (w.outside(), w.guarded(), _state(hook)) != before
        for path in (w.ws / "d", w.ws / "was", w.out / "deep", w.out / "fresh"):
            _remove(path)
        if not at.seen:
            assert nth > 1
            return
    pytest.fail("it never came to its end")


@pytest.mark.slow
@pytest.mark.parametrize("way", WRITES)
@pytest.mark.parametrize("swap", SWAPS)
def test_a_swap_before_any_call_writes_nothing_outside(w: World, swap: str, way: str) -> None:
    within = w.within
    file_patch(w.ws / "f", "old", "new", within=within)  # it looks once for links among the protected names
    outcomes = list(every_swap(w, swap, lambda path: WRITES[way](path, within)))
    assert not any(changed for _, changed in outcomes)
    assert {told for told, _ in outcomes} >= ({True} if "new" in swap else {True, False})


@pytest.mark.parametrize("swap", [name for name in SWAPS if "new" not in name])
def test_a_check_before_an_ordinary_write_would_not_do(w: World, swap: str) -> None:
    within = w.within
    within.check_write(w.ws / "f")

    def naive(path: Path) -> None:
        try:
            within.check_write(path)
        except OSError as error:
            raise ToolError(str(error)) from error
        file_write(path, EVIL)

    assert any(changed for _, changed in every_swap(w, swap, naive))


@pytest.mark.parametrize("way", READS)
@pytest.mark.parametrize("swap", ["folder", "link", "hard link"])
def test_a_swap_before_any_call_reads_no_secret(w: World, swap: str, way: str) -> None:
    within, key = w.within, w.user / ".ssh/id_rsa"
    READS["read"](w.ws / "f", within)
    acts = {"folder": lambda: to_link(w.ws / "d", w.user / ".ssh"), "link": lambda: to_link(w.ws / "d/id_rsa", key),
            "hard link": lambda: to_hard_link(w.ws / "d/id_rsa", key)}  # fmt: skip
    shown: list[str] = []
    for nth in range(1, 500):
        (w.ws / "d").mkdir()
        (w.ws / "d/id_rsa").write_bytes(b"GIF89a" if way == "picture" else b"nothing\n")
        with pytest.MonkeyPatch.context() as patch:
            at = At(patch, nth, acts[swap])
            try:
                shown.append(str(READS[way](w.ws / "d/id_rsa", within)))
            except ToolError as error:
                shown.append(str(error))
        for path in (w.ws / "d", w.ws / "was"):
            _remove(path)
        if not at.seen:
            break
    assert 10 < nth < 500 and not any(SECRET in text for text in shown)
    assert any("holds credentials" in text for text in shown) and not all("holds credentials" in text for text in shown)


@pytest.mark.parametrize("way", WRITES)
def test_a_folder_that_is_carried_away_takes_no_write_along(w: World, way: str) -> None:
    within, name = w.within, "fsync"
    (w.ws / "d").mkdir()
    (w.ws / "d/f").write_text(OLD)
    real = getattr(os, name)

    def carried(fd: int) -> None:
        if (w.ws / "d").exists():
            (w.ws / "d").rename(w.out / "d")
        real(fd)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, name, carried)
        with pytest.raises(ToolError, match="outside the workspace"):
            WRITES[way](w.ws / "d/f", within)
    assert [p.name for p in (w.out / "d").iterdir()] == ["f"] and (w.out / "d/f").read_text() == OLD


def test_two_thousand_racing_swaps_let_nothing_out(w: World) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        pytest.skip("no renameat2(2)")
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    (w.ws / "d").mkdir()
    link(w.ws / "l", w.out)
    for path in (w.ws / "d/victim", w.ws / "g"):
        path.write_text(OLD)
    link(w.ws / "m", w.victim)
    before, within, done, swaps = w.outside(), w.within, threading.Event(), [0]

    def swap(one: bytes, other: bytes) -> None:
        assert libc.renameat2(here, one, here, other, exchange) == 0
        swaps[0] += 1

    def racing() -> None:
        pairs = [(os.fsencode(w.ws / a), os.fsencode(w.ws / b)) for a, b in (("d", "l"), ("g", "m"))]
        while not done.is_set():
            for pair in pairs:
                swap(*pair)

    thread = threading.Thread(target=racing)
    thread.start()
    written = refused = 0
    try:
        while swaps[0] < 2000 or written + refused < 200:
            for path in (w.ws / "d/victim", w.ws / "g"):
                for write in (WRITES["overwrite"], WRITES["atomic"]):
                    try:
                        write(path, within)
                        written += 1
                    except ToolError:
                        refused += 1
    finally:
        done.set()
        thread.join()
    assert w.outside() == before and w.victim.read_text() == OLD


# without descriptors


@pytest.fixture
def by_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, where a folder is no descriptor."""
    monkeypatch.setattr(confine, "_BY_DESCRIPTOR", False)


@pytest.mark.slow
@pytest.mark.usefixtures("by_path", "held_open")
@pytest.mark.parametrize("trick", [*OUT, *NEW, *INSIDE])
def test_by_path_too_no_trick_writes_outside(w: World, trick: str) -> None:
    path = (OUT | NEW | INSIDE)[trick](w)
    before = w.outside(), w.guarded()
    for write in WRITES.values():
        with pytest.raises(ToolError):
            write(path, w.within)
    assert (w.outside(), w.guarded()) == before
    file_write(w.ws / "new/fine", EVIL, within=w.within)
    file_patch(w.ws / "f", "old", "new", within=w.within)
    assert "new" in file_read(w.ws / "f", within=w.within)


@pytest.mark.usefixtures("by_path", "held_open")
@pytest.mark.parametrize("trick", HIDDEN)
def test_by_path_too_no_trick_reads_a_secret(w: World, trick: str) -> None:
    path = HIDDEN[trick](w)
    for read in READS.values():
        with pytest.raises(ToolError, match="holds credentials"):
            read(path, w.within)


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        for below in path.iterdir():
            _remove(below)
        path.rmdir()
