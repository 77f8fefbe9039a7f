"""Which zone a path is in: what may be written without asking, what nobody may change unasked, what is not to be read.

Pure: takes real (resolved) paths. Names are compared without case, since many disks don't know any.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Zone = Literal["workspace", "temp", "memory", "protected", "outside"]

# What of a git directory makes git run something; commondir and gitdir say where the rest is: gitrepository-layout(5).
GIT = ("hooks", "config", "config.worktree", "commondir", "gitdir")
# What runs later by itself, wherever it lies: hooks, shell start files, autostart.
PROTECTED = (
    ".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir", ".envrc", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout",
    ".bash_aliases", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc",
    ".login", ".inputrc", ".gitconfig", ".xprofile", ".xinitrc", ".xsessionrc", ".vimrc", ".config/git/config",
    ".config/fish", ".config/autostart", ".config/systemd", ".config/nvim", "Library/LaunchAgents",
)  # fmt: skip
# What opens other doors, below the user's home.
SECRET = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".git-credentials", ".npmrc", ".pypirc", ".pgpass",
    ".my.cnf", ".password-store", ".config/gcloud", ".config/gh", ".config/hub", ".config/op", ".config/rclone",
    ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge", ".mozilla",
    ".local/share/keyrings", ".local/share/kwalletd", ".cargo/credentials.toml", ".terraform.d/credentials.tfrc.json",
    ".bash_history", ".zsh_history", ".python_history", ".thunderbird", "Library/Keychains", "Library/Cookies",
    "Library/Application Support/Google/Chrome", "Library/Application Support/Firefox", ".claude.json", ".codex/auth.json",
    ".claude/.credentials.json", ".gemini", ".Xauthority", ".ICEauthority", ".vault-token", ".oci", ".s3cfg", ".boto", ".databrickscfg", ".m2/settings.xml",
    ".gem/credentials", ".config/containers/auth.json", ".config/github-copilot", ".config/sops", ".config/age", ".config/doctl", ".config/Bitwarden",
    ".config/1Password", ".config/Signal", ".config/vivaldi", ".config/opera", ".cache/huggingface/token", "snap/firefox", "snap/chromium", ".var/app",
    ".local/share/TelegramDesktop", ".local/share/fish/fish_history", ".psql_history", ".mysql_history", ".node_repl_history",
)  # fmt: skip
SYSTEM_SECRET = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssl/private", "/etc/krb5.keytab")
# Below $GA_HOME.
ARCHIVE = "memory/L4_raw_sessions"  # other conversations too
OWN_SECRET = (
    "config.toml", "mykey.py", "mykey.json", "sessions", ARCHIVE, "logs", "spend", "chat_history", "browser", "extension",
    "outbox", "undo",
)  # fmt: skip
NOTES = ("AGENTS.md", "CLAUDE.md")  # a project's, which join the system prompt
# What steers a task that runs, in its folder below temp. What it is asked by and answers with beside that has names
# (input.txt, result.json, output.txt) that a model may well give to files of its own: never followed when it is a link.
OWN_STEERING = ("_intervene", "_keyinfo", "_stop", "reply.txt", "_history.json", ".lock")
# What holds keys by its name, wherever it lies.
_KEYS = re.compile(
    r"\.env(\..*)?|id_(rsa|dsa|ecdsa|ed25519)|.*\.(pem|key|p12|pfx|ppk|jks|kdbx|gpg|asc)|\.?(credentials|secrets?)(\..*)?"
    r"|\.(netrc|npmrc|pypirc|pgpass|htpasswd)",
    re.I,
)
_GIT_PART = re.compile(rf"/\.git/(?:modules/.+/|worktrees/[^/]+/)?(?:{'|'.join(map(re.escape, GIT))})/")
_STEERING = re.compile(rf"/[^/]+/(?:{'|'.join(map(re.escape, OWN_STEERING))})")
# Unicode's Default_Ignorable_Code_Point (DerivedCoreProperties.txt)
UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


@dataclass(frozen=True)
class Zones:
    """The zones of one task. All paths are real: `workspace`, `home` ($GA_HOME), `user` (the user's home folder)."""

    workspace: Path
    home: Path
    user: Path

    @property
    def writable(self) -> tuple[Path, Path]:
        return self.workspace, self.home / "temp"

    def of(self, path: Path) -> Zone:
        """The zone of a real path. Of $GA_HOME only temp and memory are ever written, also when it is the workspace."""
        if self.protected(path):
            return "protected"
        if path.is_relative_to(self.home / "memory") and not _below(path, self.home / ARCHIVE):
            return "memory"
        if path.is_relative_to(self.home / "temp"):
            return "workspace" if path.is_relative_to(self.workspace) else "temp"
        if _below(path, self.home):
            return "protected"
        return "workspace" if path.is_relative_to(self.workspace) else "outside"

    def hidden(self, path: Path) -> bool:
        """Whether a confined task must not read it: keys, credentials, other conversations."""
        if _below(path, self.home) and _named(path, self.home, OWN_SECRET):
            return True
        if _below(path, Path("/proc")) and path.name in ("environ", "mem", "maps", "smaps", "auxv", "kcore", "cmdline"):
            return True
        if str(path) in SYSTEM_SECRET or any(str(path).startswith(f"{name}/") for name in SYSTEM_SECRET):
            return True
        return _below(path, self.user) and _named(path, self.user, SECRET)

    def secret(self, path: Path) -> bool:
        """Whether no copy of it may be made: hidden or protected, or its name says that it holds keys."""
        return self.hidden(path) or self.of(path) == "protected" or bool(_KEYS.fullmatch(path.name))

    def protected(self, path: Path) -> bool:
        """Whether it has, or is below, a name that runs later by itself; or it steers a task."""
        parts = "/".join(_folded(part) for part in path.parts) + "/"
        temp = _folded(str(self.home / "temp"))
        steers = path.is_relative_to(self.home / "temp") and _STEERING.fullmatch(_folded(str(path))[len(temp) :])
        return bool(steers or _GIT_PART.search(parts)) or any(f"/{name.lower()}/" in parts for name in PROTECTED)

    def existing_secrets(self) -> Iterator[Path]:
        """Those that are there, to be hidden one by one."""
        places = [*(f"{self.user}/{name}" for name in SECRET), *SYSTEM_SECRET]
        yield from (Path(place) for place in places if os.path.exists(place))  # noqa: PTH110  # many, before each call


def _below(path: Path, folder: Path) -> bool:
    """Whether it is the folder or in it, also when it is only so without case: for what is denied, never for leave."""
    return path.is_relative_to(folder) or Path(_folded(str(path))).is_relative_to(_folded(str(folder)))


def _folded(name: str) -> str:
    """As disks without case compare: folded, and without the characters that nobody sees (HFS+, ext4 casefold)."""
    return name.lower() if name.isascii() else UNSEEN.sub("", name.casefold())


def _named(path: Path, folder: Path, names: tuple[str, ...]) -> bool:
    rest = "/".join(_folded(part) for part in path.parts[len(folder.parts) :])
    return any(rest == name.lower() or rest.startswith(f"{name.lower()}/") for name in names)
