"""The sandbox's recipe: which workspaces it takes, what it puts back in order, and what it says where there is none."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from genericagent import paths
from genericagent.errors import ToolError
from genericagent.safety import runs_later
from genericagent.safety import sandbox as module
from genericagent.safety.sandbox import Sandbox, own_code, sandbox_env, why_not
from genericagent.safety.syscalls import program
from genericagent.safety.zones import Zones

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux"), pytest.mark.timeout(150)]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    why_not.cache_clear()
    yield
    why_not.cache_clear()


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "SCRATCH", ("/var/tmp",))  # the tests' own folder is below /tmp and must be seen
    found = module._sockets  # those of tests that run beside come and go
    monkeypatch.setattr(module, "_sockets", lambda: (path for path in found() if path.is_relative_to(tmp_path)))
    for name in ("ws", "user/.ssh", "user/ga/temp", "user/ga/memory", "user/ga/sessions", "user/.config", "out"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("user/.ssh/id", "user/ga/config.toml", "user/.profile", "user/plain"):
        (tmp_path / name).write_text("canary\n")
    return tmp_path


BWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]


def sandbox(base: Path, workspace: Path | None = None, net: bool = False) -> Sandbox:
    return Sandbox(Zones((workspace or base / "ws").resolve(), base / "user/ga", base / "user"), net=net)


def sh(box: Sandbox, script: str, cwd: Path | None = None) -> tuple[str, list[str]]:
    """What the script printed, and the notes."""
    if not shutil.which("bwrap") or subprocess.run(BWRAP, check=False).returncode:
        pytest.skip("NO SANDBOX HERE, nothing of it was tested: bwrap does not run")
    assert why_not(box) == ""
    with box.around(["bash", "-c", script], cwd or box.zones.workspace) as run:
        done = subprocess.run(run.argv, pass_fds=run.fds, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)  # fmt: skip
    return done.stdout, run.notes


# workspaces

SECRETS = "cat {user}/.ssh/id {user}/ga/config.toml 2>&1 | grep -c canary"


@pytest.mark.parametrize(
    "kind", ["ws", "with space", "with 'quote\" ü 中", "-dash", "link", "user", "user/ga", "user/ga/temp", ".", "/"]
)
def test_a_workspace_cannot_be_used_or_opens_what_is_hidden(base: Path, kind: str) -> None:
    if kind == "link":
        (base / "link").symlink_to("ws")
    workspace = base / kind if kind != "/" else Path("/")
    workspace.mkdir(exist_ok=True)
    box = sandbox(base, workspace)
    where = base / "user/ga/temp" if kind == "user/ga" else base if kind == "/" else box.zones.workspace
    said, _ = sh(box, f"echo x > new && cat new; {SECRETS.format(user=base / 'user')}", where)
    assert said == "x\n0\n"
    assert (where / "new").read_text() == "x\n"
    assert (base / "user/.ssh/id").read_text() == "canary\n" == (base / "user/ga/config.toml").read_text()


def test_a_workspace_of_everything_lets_the_program_be_changed(base: Path) -> None:
    said, _ = sh(sandbox(base, Path("/")), f"echo >> {paths.program()}; echo >> {sys.prefix}/x; echo > /run/x", base)
    assert said.count("Read-only file system") == 3


def test_a_workspace_below_scratch_or_a_python_there_is_not_found(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCRATCH", ("/tmp", "/var/tmp"))
    said, _ = sh(
        sandbox(base), f"{sys.executable} -c 'import requests; print(1)'; ls -a {base / 'out'}; touch ok /tmp/x"
    )
    assert said.startswith("1\n") and "No such file" in said
    assert (base / "ws/ok").exists()


def test_a_home_below_scratch_is_taken_for_a_leak(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCRATCH", ("/tmp", "/var/tmp"))
    assert why_not(sandbox(base)) == ""


def test_a_hidden_folder_is_worked_in(base: Path) -> None:
    box = sandbox(base)
    for hidden in (base / "user/ga/sessions", base / "user/ga", base / "user/.ssh"):
        with pytest.raises(ToolError, match="hides the folder"):
            sh(box, "true", hidden)
    assert sh(box, "pwd", base / "out")[0] == f"{base / 'out'}\n"
    assert sh(box, "pwd", Path("/var/tmp"))[0] == "/var/tmp\n"


def test_of_our_home_too_much_or_too_little_is_seen(base: Path) -> None:
    for name in ("sche_tasks", "logs", "plugins"):
        (base / "user/ga" / name).mkdir()
    said, _ = sh(sandbox(base), f"cd {base / 'user/ga'}; ls -A; touch x; touch memory/x; touch temp/x")
    assert said.split()[:4] == ["memory", "plugins", "sche_tasks", "temp"] and said.count("Read-only") == 2
    assert (base / "user/ga/temp/x").exists()


def test_secrets_are_found_elsewhere(base: Path) -> None:
    (base / "real").mkdir()
    (base / "real/key").write_text("canary")
    (base / "user/.aws").symlink_to(base / "real")
    (base / "user/.npmrc").write_text("canary")
    (base / "my.toml").write_text("canary")
    box = sandbox(base)
    box = Sandbox(box.zones, hide=(base / "my.toml",))
    said, _ = sh(box, f"cat {base}/real/key {base}/user/.aws/key {base}/user/.npmrc {base}/my.toml; echo done")
    assert "canary" not in said and said.endswith("done\n")


def test_a_script_that_we_run_again_is_changed(base: Path) -> None:
    (base / "ws/watch.py").write_text("old")
    box = sandbox(base)
    sh(Sandbox(box.zones, fixed=(base / "ws/watch.py",)), "echo evil > watch.py; rm watch.py; mv watch.py x")
    assert (base / "ws/watch.py").read_text() == "old"


# protected names


def repository(folder: Path) -> Path:
    (folder / ".git/hooks").mkdir(parents=True)
    (folder / ".git/config").write_text("[core]\n")
    return folder


def test_a_new_protected_name_stays(base: Path) -> None:
    ws = base / "ws"
    said, notes = sh(
        sandbox(base), "echo evil > .envrc; mkdir -p d/e; echo evil > d/e/.bashrc; ln -s .. d/.zshrc; echo ok"
    )
    assert said == "ok\n" and len(notes) == 3
    assert not [p for p in ws.rglob(".*") if p.name in (".envrc", ".bashrc", ".zshrc")]
    assert all("protected: set aside as" in note for note in notes)
    assert sorted(p.read_text() for p in ws.rglob("*.from-sandbox-*") if p.is_file()) == ["evil\n"] * 2


def test_a_new_repositorys_hooks_stay(base: Path) -> None:
    _, notes = sh(
        sandbox(base),
        "mkdir -p n/.git/hooks; echo > n/.git/config; echo evil > n/.git/hooks/pre-commit; echo > n/.git/HEAD",
    )
    assert not (base / "ws/n/.git/hooks").exists() and len(notes) == 2
    _, notes = sh(sandbox(base), "mv n m; echo evil > m/.git/hooks/pre-commit")
    assert not notes or all("hooks" in note for note in notes)
    assert not (base / "ws/m/.git/hooks/pre-commit").exists()


@pytest.mark.parametrize("name", [".git/hooks/x", ".git/config", ".git/modules/sub/hooks/x", ".git/modules/a/b/config", "a/b/c/.git/hooks/x", ".envrc",
                                  ".config/autostart/x", ".GitConfig", ".config/fish/config.fish"])  # fmt: skip
def test_an_existing_protected_name_is_changed(base: Path, name: str) -> None:
    file = base / "ws" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("old")
    if "modules" in name:
        (next(p for p in file.parents if p.name in ("sub", "b")) / "HEAD").touch()
    script = f"echo evil > '{name}'; rm -rf '{name}'; mv '{name}' gone; echo evil > n; mv n '{name}'; mv .git g; mv .config c; ls"
    said, _ = sh(sandbox(base), script)
    assert file.read_text() == "old", said


def test_a_pointer_to_another_repository_is_changed(base: Path) -> None:
    (base / "ws/tree").mkdir()
    (base / "ws/tree/.git").write_text("gitdir: ../real\n")
    (base / "ws/other").mkdir()
    _, notes = sh(sandbox(base), "echo 'gitdir: evil' > tree/.git; rm tree/.git; echo 'gitdir: evil' > other/.git")
    assert (base / "ws/tree/.git").read_text() == "gitdir: ../real\n"
    assert len(notes) == 1 and f"{base}/ws/other/.git" in notes[0]


def test_missing_hooks_are_made(base: Path) -> None:
    ws = repository(base / "ws")
    (ws / ".git/hooks").rmdir()
    said, _ = sh(
        sandbox(base),
        "mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; mv .git/hooks .git/h; echo > .git/index; ls .git",
    )
    assert not list(ws.rglob("pre-commit")) and "index" in said
    assert sorted(p.name for p in (ws / ".git").iterdir()) == ["config", "index"]


@pytest.mark.parametrize("target", ["nowhere", ".envrc", "../out", "/etc/hostname", "sub"])
def test_a_link_under_a_protected_name_stops_every_call(base: Path, target: str) -> None:
    (base / "ws/sub").mkdir()
    (base / "ws/.envrc").symlink_to(target)
    said, notes = sh(sandbox(base), "echo works; rm .envrc; echo evil > .envrc; touch sub/x")
    assert said.startswith("works\n")
    assert (base / "ws/.envrc").readlink() == Path(target), notes
    assert (base / "ws/sub/x").exists() == (target != "sub")


def test_many_folders_make_the_look_around_slow(base: Path) -> None:
    for n in range(60):
        (base / f"ws/{n}").mkdir()
        for m in range(60):
            (base / f"ws/{n}/{m}").touch()
    repository(base / "ws")
    seen = sandbox(base).look().names
    assert {p.name for p in seen} == {"hooks", "config"}


# names that must not come to be in the user's home


HOME_NAMES = (".bash_profile", ".bashrc", ".zshenv", ".config/autostart")


def test_a_start_file_of_the_shell_is_made_in_the_home(base: Path) -> None:
    user = base / "user"
    before = sorted(user.rglob("*"))
    said, notes = sh(
        sandbox(base, user),
        "for f in .bash_profile .bashrc .zshenv .profile; do echo evil > $f; done; mkdir .config/autostart; echo > ok",
    )
    assert not any((user / name).exists() for name in HOME_NAMES) and (user / ".profile").read_text() == "canary\n"
    assert sorted(p for p in user.rglob("*") if p.name != "ok") == before, said
    assert not notes


def test_the_end_of_one_call_opens_another(base: Path) -> None:
    user = base / "user"
    box = sandbox(base, user)
    sh(box, "true")
    with box.around(["bash", "-c", "read x; echo evil > .bash_profile; mkdir .config/autostart; true"], user) as run:
        first = subprocess.Popen(run.argv, pass_fds=run.fds, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        sh(box, "true")  # begins and ends while the first one runs
        assert (user / ".bash_profile").exists()
        first.communicate(b"\n")
    assert not any((user / name).exists() for name in HOME_NAMES)


def test_what_a_killed_call_left_stays_or_the_users_own_goes(base: Path) -> None:
    user = base / "user"
    for name in (".bash_profile", ".zshrc"):
        (user / name).touch(0o444)
    os.utime(user / ".bash_profile", (0, 0))  # as it was left
    sh(sandbox(base, user), "echo evil > .bash_profile; echo evil > .zshrc")
    assert not (user / ".bash_profile").exists()
    assert (user / ".zshrc").read_bytes() == b""


def test_what_the_user_writes_meanwhile_goes(base: Path) -> None:
    box = sandbox(base, base / "user")
    sh(box, "true")
    with box.around(["true"], base / "user"):
        (base / "user/.zshenv").write_text("mine")
    assert (base / "user/.zshenv").read_text() == "mine" and not (base / "user/.bashrc").exists()


# where there is none


def fake(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    (folder / "bin").mkdir()
    (folder / "bin/bwrap").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin/bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")


@pytest.mark.parametrize("script, says", [
    ("while [ \"$1\" != -- ]; do shift; done; shift; exec \"$@\"", "was not stopped"),
    ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", "forbids user namespaces"),
    ("echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1", "forbids user namespaces"),
    ("echo 'bwrap: Unknown option --disable-userns' >&2; exit 1", "0.8 or later"),
    ("echo \"bwrap: Can't mount proc on /newroot/proc: Weird\" >&2; exit 1", "Can't mount proc"),
    ("exit 0", ""), ("exit 3", "exit 3"), ("kill -9 $$", "does not work"),
])  # fmt: skip
def test_a_sandbox_that_does_not_hold_is_relied_on(
    base: Path, monkeypatch: pytest.MonkeyPatch, script: str, says: str
) -> None:
    fake(base, monkeypatch, script)
    fault = why_not(sandbox(base))
    assert fault and says in fault and "\n" not in fault
    assert not list(base.rglob(".ga-probe*")) and not Path(f"/{'.ga-probe'}").exists()


def test_a_missing_sandbox_is_a_riddle(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(base))
    assert "install the package bubblewrap" in why_not(sandbox(base))
    why_not.cache_clear()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "for Linux" in why_not(sandbox(base))


def test_the_probe_runs_each_time_or_leaves_something(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(base, monkeypatch, f'echo x >> {base / "count"}; exec /usr/bin/bwrap "$@"')
    for _ in range(3):
        why_not(sandbox(base))
    assert (base / "count").read_text() == "x\n"
    assert not list(base.rglob(".ga-probe*"))


# its parts


def test_the_filter_is_no_valid_program() -> None:
    for machine in ("x86_64", "aarch64"):
        data = program(machine)
        assert len(data) % 8 == 0 and data[-8:-6] == b"\x06\x00"
        jumps = [(at, data[at * 8 + 2], data[at * 8 + 3]) for at in range(len(data) // 8 - 1)]
        assert all(at + 1 + max(true, false) < len(data) // 8 for at, true, false in jumps)
    assert program("riscv64") == b""


def test_more_than_the_listed_variables_get_in() -> None:
    kept = {"PATH": "/bin", "HOME": "/h", "LANG": "C", "LC_ALL": "C", "TERM": "x", "VIRTUAL_ENV": "/v", "GA_CALL": "m",
            "HTTPS_PROXY": "http://p:3128", "SSL_CERT_FILE": "/c", "MINE": "1"}  # fmt: skip
    gone = {"SSH_AUTH_SOCK": "/s", "DBUS_SESSION_BUS_ADDRESS": "x", "DISPLAY": ":0", "GITHUB_TOKEN": "t", "AWS_PROFILE": "p", "LD_PRELOAD": "/x.so",
            "PYTHONPATH": "/p", "BASH_ENV": "/b", "http_proxy": "http://u:pw@p", "XDG_RUNTIME_DIR": "/run/user/1", "PATHS": "x", "MY_PATH": "x"}  # fmt: skip
    env = sandbox_env(kept | gone | {"TMPDIR": "/var/mine"}, ["MINE"])
    assert env == kept | {"TMPDIR": "/tmp", "XDG_CACHE_HOME": "/tmp/.cache"}
    assert sandbox_env(kept | gone | {"TMPDIR": "/var/mine"}, ["MINE"], sandboxed=False) == kept | {
        "TMPDIR": "/var/mine"
    }


def test_a_folder_that_is_not_ours_to_read_stops_the_call(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.scandir

    def scandir(path: Path) -> contextlib.AbstractContextManager[Iterator[os.DirEntry[str]]]:
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied")
        return real(path)

    (base / "ws/locked").mkdir()
    repository(base / "ws/open")
    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", scandir)
        assert sh(sandbox(base), "echo > open/.git/hooks/x; echo ok")[0].endswith("ok\n")
    assert not (base / "ws/open/.git/hooks/x").exists()


# git directories

git = pytest.mark.skipif(not shutil.which("git"), reason="needs git")


def git_in(folder: Path, *args: str) -> str:
    """What git says on the host, the user's own settings left out."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    line = ["git", "-c", "safe.directory=*", "-c", "user.name=a", "-c", "user.email=a@b", *args]
    done = subprocess.run(
        line, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.stdout


@git
def test_a_pointer_to_a_copied_git_directory_runs_its_program(base: Path) -> None:
    ws = base / "ws"
    git_in(ws, "init", "-q")
    script = f"cp -r .git ev; printf '[core]\\n\\tfsmonitor = touch {base}/ran; false\\n' >> ev/config; echo $PWD/ev > .git/commondir"
    _, notes = sh(sandbox(base), script)
    git_in(ws, "status")
    assert not (base / "ran").exists() and any("commondir" in note for note in notes), notes
    sh(sandbox(base), "echo [extensions] > x; mkdir -p .git/worktrees; echo done")
    assert "branch" in git_in(ws, "status")


@pytest.mark.parametrize("name", [".git/commondir", ".git/config.worktree", ".git/modules/a/commondir", ".git/modules/a/config", ".git/modules/a/b/hooks/x",
                                  ".git/worktrees/t/commondir", ".git/worktrees/t/gitdir", ".git/worktrees/t/config.worktree", "bare/config", "bare/hooks/x",
                                  "d/e/f/g/h/i/j/.git/config", ".config/.git/hooks/x"])  # fmt: skip
@pytest.mark.parametrize("there", [True, False])
def test_what_steers_git_is_changed_or_made(base: Path, name: str, there: bool) -> None:
    file = base / "ws" / name
    file.parent.mkdir(parents=True)
    (base / "ws/bare/objects").mkdir(parents=True, exist_ok=True)
    (base / "ws/bare/HEAD").touch()
    if there:
        file.write_text("old")
    elif file.parent.name == "hooks":
        file.parent.rmdir()
    said, notes = sh(
        sandbox(base), f"mkdir -p '{file.parent}'; echo evil > {name}; echo evil > n; mv n {name}; mv .git g; echo"
    )
    assert (file.read_text() == "old") if there else not file.exists(), said + str(notes)


@git
def test_a_worktree_cannot_be_added(base: Path) -> None:
    ws = base / "ws"
    git_in(ws, "init", "-q")
    git_in(ws, "commit", "-q", "--allow-empty", "-m", "x")
    said, notes = sh(
        sandbox(base), "git -c safe.directory='*' worktree add -q tree -b b && git -C tree -c safe.directory='*' status"
    )
    assert "branch b" in said and "branch b" in git_in(ws / "tree", "status"), (said, notes)
    assert notes and all("git repository was made" in note for note in notes)


@git
@pytest.mark.parametrize(
    "how", ["hooksPath = .husky/_", 'hooksPath = "hooks dir"', "hooksPath = .missing", "HOOKSPATH=~/deep/hooks"]
)
def test_hooks_elsewhere_in_the_workspace_are_changed(base: Path, how: str) -> None:
    ws = base / "ws"
    where = ws / how.split("=")[1].strip().strip('"').replace("~/", "")
    git_in(ws, "init", "-q")
    with (ws / ".git/config").open("a") as config:
        config.write(f"[core]\n\t{how}\n")
    if "missing" not in how:
        where.mkdir(parents=True)
        (where / "pre-commit").write_text("old\n")
    box = Sandbox(Zones(ws, base / "user/ga", ws), net=False)
    script = f"mkdir -p '{where}'; printf '#!/bin/sh\\ntouch {base}/ran\\n' > x; chmod +x x; cp x '{where}/pre-commit'; mv deep d; mv .husky h; mkdir -p '{where}'; cp x '{where}/pre-commit'; chmod +x '{where}/pre-commit'"
    said, notes = sh(box, script)
    git_in(ws, "commit", "-q", "--allow-empty", "-m", "x")
    assert not (base / "ran").exists(), said + str(notes)
    assert "missing" in how or (where / "pre-commit").read_text() == "old\n"


@git
@pytest.mark.parametrize("section", ["[include]", '[includeIf "gitdir:**"]'])
def test_an_included_config_is_changed(base: Path, section: str) -> None:
    ws = base / "ws"
    git_in(ws, "init", "-q")
    (ws / "share").mkdir()
    (ws / "share/one").write_text("[include]\n\tpath = two\n")
    (ws / "share/two").write_text("[core]\n\thooksPath = myhooks\n")
    with (ws / ".git/config").open("a") as config:
        config.write(f"{section} path = ../share/one\n")
    script = (
        f"for f in one two; do printf '[core]\\n\\tfsmonitor = touch {base}/ran; false\\n' > share/$f; done; mv share s; mkdir share;"
        f"printf '[core]\\n\\tfsmonitor = touch {base}/ran; false\\n' > share/one; mkdir myhooks; echo > myhooks/pre-commit"
    )
    _, notes = sh(sandbox(base), script)
    git_in(ws, "status")
    assert not (base / "ran").exists() and len(notes) == 1 and "myhooks" in notes[0], notes


def test_hooks_of_a_linked_worktree_are_changed(base: Path) -> None:
    ws = repository(base / "ws")
    for name in (".git/worktrees/t", "t/.husky"):
        (ws / name).mkdir(parents=True)
    (ws / ".git/config").write_text("[core]\nhooksPath = .husky\n")
    (ws / ".git/worktrees/t/commondir").write_text("../..\n")
    (ws / "t/.git").write_text(f"gitdir: {ws}/.git/worktrees/t\n")
    assert "Read-only" in sh(sandbox(base), "touch t/.husky/pre-commit")[0]


@pytest.mark.parametrize("text", ["[include]\npath = .\n", "[core]\nhooksPath = /\n", "[core]\nhooksPath = ..\n", "[include]\npath = config\n", "[core]\nhooksPath = a\0b\n",
                                  "[core]\nhooksPath = " + "x/" * 9000 + "\n", "\ufffd[core\n", "gitdir: x\n" * 50_000])  # fmt: skip
def test_an_odd_config_stops_every_call(base: Path, text: str) -> None:
    ws = repository(base / "ws")
    (ws / ".git/config").write_text(text)
    (ws / "sub").mkdir()
    (ws / "sub/.git").write_text(text)
    assert sh(sandbox(base), "echo > new && echo works")[0] == "works\n"


# many files


@pytest.mark.slow
@pytest.mark.parametrize("files", [".cache/{}", "{}", ".cache/{0}/{0}"])
def test_many_files_hide_a_protected_name(base: Path, files: str) -> None:
    ws = base / "ws"
    repository(ws / "zsub")
    for n in range(3000 if "/" in files else 40_000):
        file = ws / files.format(n) if files != "{}" else ws / str(n)
        if n < 1000 or files.count("/") < 2:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
    (ws / "zsub/.envrc").write_text("old")
    box = sandbox(base)
    for _ in range(2):  # the second time from memory
        said, notes = sh(
            box,
            "echo evil > zsub/.git/hooks/pre-commit; echo evil > zsub/.envrc; echo evil > .bashrc; echo evil > zsub/.zshrc",
        )
        assert said.count("Read-only") == 2, said
        assert len(notes) == 2 and not (ws / ".bashrc").exists() and not (ws / "zsub/.zshrc").exists(), notes


def test_a_look_that_was_cut_short_is_not_told(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ws = base / "ws"
    monkeypatch.setattr(runs_later, "ENTRIES", 100)
    repository(ws)
    for n in range(300):
        (ws / f"{n}.txt").touch()
    said, notes = sh(sandbox(base), "echo evil > .git/hooks/pre-commit; echo evil > .git/config; echo evil > .envrc")
    assert said.count("Read-only") == 2 and not (ws / ".envrc").exists()  # named, so found all the same
    assert [note for note in notes if "guarded" in note] == [module.CUT]
    assert len(sh(sandbox(base), "true")[1]) == 1
    monkeypatch.setattr(runs_later, "ENTRIES", 10_000)
    assert sh(sandbox(base), "true")[1] == []


def test_a_change_in_the_moment_of_a_look_is_missed_by_the_next(base: Path) -> None:
    box = sandbox(base)
    (base / "ws/d").mkdir()
    for n in range(30):
        box.look()
        (base / f"ws/d/{n}").mkdir()
        (base / f"ws/d/{n}/.envrc").touch()
        assert len(box.look().names) == n + 1


def test_many_new_names_crowd_out_those_that_were_there(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOUNTS", 40)
    box = sandbox(base)
    (repository(base / "ws/a/b/c/mine") / ".envrc").write_text("old")
    sh(box, "for n in $(seq 50); do mkdir -p $n/.git/hooks; touch $n/.git/config; done")
    said, notes = sh(
        box, "for f in hooks/x config; do echo evil > a/b/c/mine/.git/$f; done; echo evil > a/b/c/mine/.envrc"
    )
    assert said.count("Read-only") == 3 and module.CUT in notes


@pytest.mark.slow
def test_many_repositories_stop_every_call(base: Path) -> None:
    name = "x" * 200
    for n in range(600):
        repository(base / f"ws/{n}{name}/{name}")
    said, notes = sh(sandbox(base), f"echo works; rm -rf [1-5]*{name} 2>/dev/null; rm -rf 0{name}; ls | wc -l")
    assert said.startswith("works\n")
    assert notes[-1] == module.CUT


# through links


@pytest.mark.parametrize("links", [{".envrc": "dot/envrc"}, {".envrc": "dot/sub/envrc"}, {".envrc": "l/envrc", "l": "dot"}, {".envrc": "a", "a": "dot/envrc"},
                                   {"deep/.envrc": "../dot/envrc"}])  # fmt: skip
@pytest.mark.parametrize("script", ["mv dot d2; mkdir -p dot/sub; for f in dot/envrc dot/sub/envrc; do echo evil > $f; done",
                                    "rm l a; mkdir -p l/sub; echo evil > l/envrc; echo evil > a",
                                    "rm .envrc deep/.envrc; mkdir e; echo evil > e/envrc; ln -s e/envrc .envrc; ln -s ../e/envrc deep/.envrc"])  # fmt: skip
def test_what_a_link_leads_to_is_swapped(base: Path, links: dict[str, str], script: str) -> None:
    ws = base / "ws"
    for name in ("dot/envrc", "dot/sub/envrc"):
        (ws / name).parent.mkdir(parents=True, exist_ok=True)
        (ws / name).write_text("old")
    for name, target in links.items():
        (ws / name).parent.mkdir(exist_ok=True)
        (ws / name).symlink_to(target)
    said, notes = sh(sandbox(base), script)
    for file in (p for p in (ws / ".envrc", ws / "deep/.envrc") if p.exists()):
        assert file.read_text() == "old", (said, notes)


def test_a_linked_git_directory_is_swapped(base: Path) -> None:
    ws = base / "ws"
    repository(ws / "x")
    (ws / "x/.git").rename(ws / "gitdir")
    (ws / ".git").symlink_to("gitdir")
    script = "{}; mkdir -p .git/hooks gitdir/hooks; for g in .git gitdir; do echo evil > $g/hooks/pre-commit; echo evil > $g/config; echo x > $g/commondir; done"
    for first in ("mv gitdir g2", "rm .git; mkdir .git", "true"):
        _, notes = sh(sandbox(base), script.format(first))
        assert (ws / ".git").readlink() == Path("gitdir"), notes
        assert (ws / ".git/config").read_text() == "[core]\n" and not (ws / ".git/hooks/pre-commit").exists(), notes
        assert not (ws / ".git/commondir").exists(), notes


def test_a_folder_above_a_repository_or_the_home_or_the_program_is_swapped(base: Path) -> None:
    repository(base / "user/p/q/repo")
    (base / "user/p/watch.py").write_text("old")
    (base / "user/x").mkdir()
    (base / "user/ga").rename(base / "user/x/ga")
    zones = Zones(base / "user", base / "user/x/ga", base / "user")
    said, _ = sh(
        Sandbox(zones, net=False, fixed=(base / "user/p/watch.py",)), "mv p p2; mv p/q q2; mv x x2; mv x/ga g; ls"
    )
    assert said.count("resource busy") == 4, said
    assert (base / "user/p/q/repo/.git/config").exists() and (base / "user/x/ga/config.toml").exists()


# odd files under protected names


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["r/.git/config", "r/.git/hooks", ".envrc", "r/.git", "r/.git/commondir", ".config/fish", "r/.git/modules"]
)
@pytest.mark.parametrize("make", ["mkfifo {0}", "mkfifo {0}; touch -d @0 {0}", "ln -s /dev/zero {0}", "ln -s {0} {0}", "truncate -s 1T {0}", "touch {0}", "mkdir {0}; mkfifo {0}/x",
                                  "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('{0}')\"", "mkdir {0}; chmod 0 {0}"])  # fmt: skip
def test_an_odd_file_hangs_the_next_call(base: Path, name: str, make: str) -> None:
    box = sandbox(base)
    (base / f"ws/{name}").parent.mkdir(parents=True, exist_ok=True)
    if name not in ("r/.git/config", "r/.git"):
        (base / "ws/r/.git").mkdir(exist_ok=True, parents=True)
        (base / "ws/r/.git/config").touch()
    sh(box, make.format(name))
    assert sh(box, "echo works")[0] == "works\n"
    subprocess.run(
        ["bash", "-c", make.format(name)], cwd=base / "ws", check=False, stderr=subprocess.DEVNULL
    )  # by the user
    assert sh(box, "echo works")[0] == "works\n"


def test_a_file_where_hooks_belong_stops_the_rest_from_being_set_aside(base: Path) -> None:
    ws = base / "ws"
    script = "mkdir -p a/.git b/.git c/.git/hooks; echo evil > a/.git/hooks; mkfifo b/.git/hooks; touch c/.git/hooks/x.sample; echo evil > .envrc; echo evil > .zshrc; echo said"
    said, notes = sh(sandbox(base), script)
    assert said == "said\n" and len(notes) == 4, notes
    assert not any((ws / name).exists() for name in ("a/.git/hooks", "b/.git/hooks", ".envrc", ".zshrc"))
    assert (ws / "c/.git/hooks/x.sample").exists()


def test_what_cannot_be_set_aside_is_not_told(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.rename

    def rename(path: Path, target: Path) -> Path:
        if path.name in (".envrc", "hooks"):
            raise PermissionError(13, "Permission denied")
        return real(path, target)

    monkeypatch.setattr(Path, "rename", rename)
    said, notes = sh(
        sandbox(base),
        "for f in .envrc .zshrc; do echo evil > $f; done; mkdir -p .git/hooks; touch .git/hooks/x; echo said",
    )
    assert said == "said\n" and len(notes) == 3
    assert sum("could not be set aside: Permission denied" in note for note in notes) == 2
    assert not (base / "ws/.zshrc").exists() and (base / "ws/.envrc").exists()


def test_a_script_that_locks_what_looks_like_ours_hangs_the_next_call(base: Path) -> None:
    box = sandbox(base)
    assert why_not(box) == ""
    script = "import fcntl, os; os.mkdir('n'); os.mkdir('n/.git'); open('n/.git/config', 'w'); os.mkdir('n/.git/hooks'); os.utime('n/.git/hooks', (0, 0)); f = os.open('n/.git/hooks', os.O_RDONLY); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); input()"
    with box.around([sys.executable, "-c", script], base / "ws") as run:
        first = subprocess.Popen(run.argv, pass_fds=run.fds, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert first.stdout and first.stdout.readline() == b"held\n"
        assert sh(box, "echo works; echo evil > n/.git/hooks/x")[0].startswith("works\n")
        first.communicate(b"\n")
    assert not (base / "ws/n/.git/hooks/x").exists()


# our own


def test_a_temp_folder_that_a_script_closed_opens_others_tasks(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, box = os.scandir, sandbox(base)

    def scandir(path: Path) -> contextlib.AbstractContextManager[Iterator[os.DirEntry[str]]]:
        if Path(path).name == "temp" and closed:
            raise PermissionError(13, "Permission denied")
        return real(path)

    closed: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", scandir)
        assert why_not(box) == ""
        with box.around(["true"], base / "ws") as run:
            closed.append(1)
        assert not run.notes
        with pytest.raises(ToolError, match="cannot be listed"), box.around(["true"], base / "ws"):
            pass


@pytest.mark.slow
def test_thousands_of_names_fill_the_result_or_hang_the_next_call(base: Path) -> None:
    box = sandbox(base)
    script = "for i in $(seq 300); do mkdir $i; touch $i/.envrc; done; mkdir r r/.git; for i in $(seq 9999); do echo path=../$i; done > r/.git/config; for i in $(seq 50); do cp -r r r$i; done"
    _, notes = sh(box, script)
    assert len(notes) == module.TOLD + 1 + 1 and not list((base / "ws").glob("*/.envrc"))
    assert sh(box, "echo works") == ("works\n", [module.CUT])


def test_our_own_code_is_a_workspace(base: Path) -> None:
    ours = paths.program().parent
    for folder in (ours, ours / "genericagent", ours / "tests/x"):
        box = Sandbox(Zones(folder, base / "user/ga", base / "user"), net=False)
        assert own_code(folder) and "folder of this program" in why_not(box)
        with pytest.raises(ToolError, match="folder of this program"), box.around(["true"], folder):
            pass
    assert not own_code(ours.parent) and not own_code(ours.with_name(ours.name + "2"))


def task(base: Path, name: str, *files: str) -> None:
    for file in (".lock", "input.txt", *files):
        (base / "user/ga/temp" / name).mkdir(exist_ok=True)
        (base / "user/ga/temp" / name / file).write_text("canary")


@pytest.mark.parametrize("workspace", ["ws", "user/ga/temp", "user/ga/temp/mine", "user/ga/temp/mine/sub", "user"])
def test_another_task_is_steered_or_read(base: Path, workspace: str) -> None:
    temp = base / "user/ga/temp"
    task(base, "night", "_intervene", "_history.json", "result.json")
    task(base, "mine")
    for name in ("_requests", "_output", "work", "env", "mine/sub"):
        (temp / name).mkdir()
        (temp / name / "file").write_text("canary")
    (temp / "env/.lock").touch()  # as uv makes it
    script = f"cd {temp}; cat night/* _requests/*; for n in night _requests _output; do echo evil > $n/reply.txt; done; mv night n; rm -rf night _requests; mv _output o; cat _output/file work/file env/file; echo > work/x"
    said, notes = sh(sandbox(base, base / workspace), script)
    assert said.count("canary") == 3, said
    assert sorted(p.name for p in (temp / "night").iterdir()) == [
        ".lock",
        "_history.json",
        "_intervene",
        "input.txt",
        "result.json",
    ]
    assert (temp / "work/x").exists() and (temp / "_output/file").exists() and (temp / "_requests/file").exists()
    assert not (temp / "_output/reply.txt").exists() and not notes
    mine = sh(sandbox(base, base / workspace), f"cat {temp}/mine/input.txt")[0]
    assert (mine == "canary") == ("mine" in workspace)


def test_hundreds_of_old_tasks_stop_every_call(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(400):
        task(base, f"t{n}")
    assert sh(sandbox(base), f"cat {base}/user/ga/temp/*/input.txt | wc -c")[0].endswith("0\n")
    monkeypatch.setattr(module, "TASKS", 399)
    with pytest.raises(ToolError, match="remove old ones"), sandbox(base).around(["true"], base / "ws"):
        pass


@pytest.mark.parametrize("name, zone", [
    ("ga/temp/t/_intervene", "protected"), ("ga/temp/t/reply.txt", "protected"), ("ga/temp/t/REPLY.TXT", "protected"), ("ga/temp/t/output.txt", "temp"),
    ("ga/temp/t/result.json", "temp"), ("ga/temp/t/_history.json", "protected"), ("ga/temp/t/.lock", "protected"), ("ga/temp/reply.txt", "temp"), ("ga/temp/t/u/reply.txt", "temp"),
    ("ga/temp/t/notes.txt", "temp"), ("ga/temp/t/outputs.txt", "temp"), ("ws/t/reply.txt", "workspace"), ("ws/.git/modules/a/b/config", "protected"),
    ("ws/.git/commondir", "protected"), ("ws/.git/worktrees/x/gitdir", "protected"), ("ws/.git/refs/heads/config", "workspace"), ("ws/.git/modules/hooks.txt", "workspace"),
])  # fmt: skip
def test_what_steers_a_task_or_git_is_written_unasked(name: str, zone: str) -> None:
    assert Zones(Path("/u/ws"), Path("/u/ga"), Path("/u")).of(Path("/u") / name) == zone


def test_a_workspace_that_was_swapped_for_a_link_opens_what_it_leads_to(base: Path) -> None:
    box = sandbox(base)
    sh(box, "true")
    (base / "ws").rename(base / "ws2")
    (base / "ws").symlink_to("out")
    with pytest.raises(ToolError, match="no longer the folder"), box.around(["true"], base):
        pass


def test_a_folder_swapped_between_the_look_and_the_mount_opens_what_it_leads_to(base: Path) -> None:
    ws = base / "ws"
    repository(ws / "n/d")
    box = sandbox(base)
    assert why_not(box) == ""
    with contextlib.suppress(ToolError), box.around(["sh", "-c", f"echo evil > {base}/out/d/.git/new"], ws) as run:
        (ws / "n").rename(ws / "m")  # as the script of another call would
        (ws / "n").symlink_to("../out")
        repository(base / "out/d")
        subprocess.run(run.argv, pass_fds=run.fds, check=False)
    assert not (base / "out/d/.git/new").exists()


def test_descriptors_of_the_host_get_in(base: Path) -> None:
    repository(base / "ws/n")
    said, _ = sh(sandbox(base), "for fd in /proc/self/fd/*; do readlink $fd; done")
    assert str(base) not in said, said
