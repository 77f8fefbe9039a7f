"""Which zone a path is in: what may be written without asking, what nobody may change unasked, what is not to be read.

Pure: takes real (resolved) paths. Names are compared without case, since many disks don't know any.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Zone = Literal["workspace", "temp", "memory", "protected", "outside"]

# What runs later by itself, wherever it lies: hooks, shell start files, autostart.
PROTECTED = (
    ".git/hooks", ".git/config", ".git/config.worktree", ".envrc", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout",
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
)  # fmt: skip
# Below $GA_HOME.
OWN_SECRET = ("config.toml", "mykey.py", "mykey.json", "sessions", "logs", "spend", "chat_history", "bridge_token")


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
        if _below(path, self.home / "memory"):
            return "memory"
        if self._protected(path) or (_below(path, self.home) and not _below(path, self.home / "temp")):
            return "protected"
        if _below(path, self.workspace):
            return "workspace"
        return "temp" if _below(path, self.home / "temp") else "outside"

    def hidden(self, path: Path) -> bool:
        """Whether a confined task must not read it: keys, credentials, other conversations."""
        if _below(path, self.home) and _named(path, self.home, OWN_SECRET):
            return True
        if _below(path, Path("/proc")) and path.name in ("environ", "mem", "maps", "kcore", "cmdline"):
            return True
        return _below(path, self.user) and _named(path, self.user, SECRET)

    def _protected(self, path: Path) -> bool:
        parts = "/".join(part.lower() for part in path.parts)
        return any(f"/{name.lower()}/" in f"{parts}/" for name in PROTECTED)

    def existing_secrets(self) -> Iterator[Path]:
        """Those that are there, to be hidden one by one."""
        yield from (p for name in SECRET if (p := self.user / name).exists())


def _below(path: Path, folder: Path) -> bool:
    """Whether it is the folder or in it; without case where that could be the same."""
    return path.is_relative_to(folder) or Path(str(path).lower()).is_relative_to(str(folder).lower())


def _named(path: Path, folder: Path, names: tuple[str, ...]) -> bool:
    rest = "/".join(part.lower() for part in path.parts[len(folder.parts) :])
    return any(rest == name.lower() or rest.startswith(f"{name.lower()}/") for name in names)
