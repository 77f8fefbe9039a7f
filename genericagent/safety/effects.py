"""What one command line (an argv) would delete, write, send, fetch or change: tables of tools, a method for each kind.

Words come as `shell_words` splits them; what cannot be known stands as one of the marks below, and `*` counts as a
wildcard also where a quote takes that from it. Facts: the options of GNU coreutils, findutils, git, curl, rsync as in their manuals.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..prompts import say
from .shell_words import UNKNOWN as UNKNOWN
from .shell_words import T, unescaped
from .zones import Zones

NET, DATA, FRESH, ANY, CODED = (chr(0xFFFFE - i) for i in range(5))
"""Marks, besides UNKNOWN: text from the net · the content of a file · a new temporary folder · some path below ·
text that is decoded only then."""
HIDDEN = f"[{UNKNOWN}{NET}{DATA}{ANY}{CODED}]"  # patterns are text: re compiles those that are needed, once
MAX_CHARS = 100_000  # longer scripts are searched for dangerous words instead
MAX_DEPTH = 12  # scripts in scripts, functions in functions, sudo in env
URL = r"(?:[a-z][a-z0-9+.-]*://(?:[^/@\s]*@)?|[\w.-]+@(?=[\w.-]+:))(\[[^\]\s]*\]|[^/:?#\s]+)"
_REMOTE = r"(?:[\w.-]+@)?([\w.-]{2,}|\[[\da-fA-F:]+\]):(?!\\)|rsync://(?:[^/@]*@)?([^/:]+)"
_DEVICE = r"(?i)/dev/(sd|hd|vd|xvd|nvme|mmcblk|r?disk|mapper/|dm-|md\d|loop|mem|kmem|sr\d)|\\\\\.\\physicaldrive"
_NO_FILE = r"(?i)/dev/(null|zero|full|tty|std\w+|fd/.*|pts/.*)$|nul:?$|$"
_OF_THE_SYSTEM = r"(?i)/(usr|s?bin|lib\w*|opt|nix|snap|system|library|applications)/|[a-z]:/(windows|program)"
_SETTING = r"/(etc|boot|var/spool/cron|(usr/)?lib/systemd|Library/Launch)\b"
_SYSTEM = r"bin|boot|dev|etc|lib|lib64|proc|sbin|sys|usr|var|system|library|home|users"
_SUSPICIOUS = (
    r"(?i)\b(?:rm\s(?:[^\n]{0,60}\s)?-\w{0,8}r|rmtree|rmSync|mkfs|wipefs|shred\b|dd\s[^\n]{0,80}of=/dev|git\s+push\s[^\n]{0,80}(?:-f\b|--force)|"
    r"remove-item\b[^\n]{0,80}-r|r[md]\w{0,9}\s+/s|format-volume|iex\b|invoke-expression)|find\s[^\n]{0,80}-delete|"
    r"(?:curl|wget|iwr)\b[^\n]{0,120}\|\s*(?:sudo\s+)?\w{0,9}sh\b|\bsh\s+<\(|>\s*/dev/(?:sd|nvme|hd|vd)|r['\"\\]+m\b|base64\s[^\n]{0,80}\|\s*\w{0,9}sh\b"
)
_ASKS_THE_NET = r"(?i)\b(curl|wget|urlopen|requests|fetch|ssh|git clone|invoke-webrequest|iwr)\b"
_NARROW = r"(?m)^-(i?(name|path|wholename|regex)\n.*[^*./\n]|[mac]?(time|min)|size|empty|newer|user|perm)"
_ASKS_ABOUT = r"(?m)^(--version|--help|/\?|--status)$"
_DECODERS = ("base64", "base32", "xxd", "openssl", "rev", "tr", "uudecode", "gpg", "rot13")
_KINDS = {"python": r"python|\.py$", "powershell": r"\.ps1$", "cmd": r"\.(bat|cmd)$", "code": r"node|perl|ruby|php|\.(m?js|pl|rb)$"}  # fmt: skip
_DECODING = {"-d", "-D", "--decode", "-di", "-r", "-rp", "--decrypt"}

# names | short options with a value | long ones | which method of Effects does the rest, with what
_TOOLS = """
rm srm grm rmdir unlink rimraf remove-item ri rd del erase | | filter include exclude erroraction stream depth | delete
cp install ln copy-item cpi copy xcopy | tSmog | target-directory suffix mode owner group filter include exclude | copy
mv move-item mi move ren | tS | target-directory suffix filter include exclude | move
touch mkdir md truncate mkfifo | rstdm | reference size date mode | write
tee dd tee-object set-content add-content out-file new-item ni | | value encoding itemtype erroraction | write
sed gsed | efl | expression file line-length | write
tar bsdtar unzip | fCTXbd | file directory exclude files-from exclude-from strip-components | write
chmod chown chgrp setfacl | | reference | mode
find gfind | | | find
ls dir gci get-childitem | | filter include exclude depth |
git | Cc | git-dir work-tree namespace | git
git-clone | boujc | branch depth origin reference template config |
curl curlie iwr irm invoke-webrequest invoke-restmethod | oXdFTHuAebcCmyYzKEPQDUrtwx | request output output-dir header data data-raw data-binary data-urlencode form json upload-file user max-time retry user-agent proxy connect-timeout write-out cookie cookie-jar cacert referer outfile method body headers infile contenttype useragent timeoutsec credential websession | curl
wget wget2 aria2c | OoPaUtTid | output-document post-data post-file method body-data body-file directory-prefix header user-agent tries timeout dir out | curl
http https xh | odapsh | output auth session | curl
scp sftp | cDFiJloPSX | | remote
rsync | efBTM | rsh exclude include filter files-from exclude-from log-file partial-dir temp-dir backup-dir bwlimit port chmod chown | remote
ssh | bcDEeFIiJLlmOopQRSWw | | ssh
sh bash zsh dash ksh ash fish rbash mksh . source | oO | rcfile init-file | shell
node nodejs deno bun | epr | eval print require | code e p eval print
perl ruby lua osascript rscript tclsh | eEIMm | | code e E
python | cmWXQ | | code c m
php | rdf | | code r
awk gawk mawk | vFf | assign file | code
cmd powershell pwsh | | | windows
eval watch trap invoke-expression iex | n | interval | text
su runuser script | cgGsu | command shell user | su
cd pushd popd chdir set-location sl | | | cd
echo printf write-output cat head tail env printenv od gzip type gc get-content base64 base32 xxd openssl gpg rev pwd mktemp dirname realpath readlink which | ncpw | lines bytes wrap tmpdir | print
sudo doas | ugpCThrUDR | user group prompt host chdir | run
env | uC | unset chdir | run
time nice ionice stdbuf systemd-run caffeinate proxychains proxychains4 strace ltrace exec parallel | foncietuaEPjI | format output adjustment class classdata unit property jobs | run
timeout gtimeout flock | skwE | signal kill-after timeout | run 1
xargs gxargs | adEILnPs | max-args max-procs delimiter arg-file max-lines replace | run
chroot taskset chrt setarch | | | run 1
pkexec nohup command builtin setsid busybox toybox unbuffer torsocks catchsegv winpty chronic noglob nocorrect unshare start call start-process saps | | | run
"""  # fmt: skip
_LOUD = ("sudo", "doas", "pkexec", "xargs", "systemd-run", "parallel")  # a rule may mean these themselves
_STOPS = ("run", "ssh", "git", "shell", "code", "text")  # their options end at the first word that is none

# effect | names | pattern for one of its words, in small letters, `\n` between words | unless there is
_RULES = r"""
control | sudo doas su pkexec runuser systemd-run shutdown reboot halt poweroff telinit useradd usermod userdel adduser deluser groupadd groupmod groupdel passwd chpasswd visudo vipw chsh chfn swapoff insmod modprobe rmmod setenforce xdotool ydotool wtype cliclick batch setcap chattr kexec killall5 regedit osascript bcdedit vssadmin takeown mshta wscript cscript stop-computer restart-computer set-executionpolicy register-scheduledtask set-scheduledtask new-service set-service stop-service new-localuser add-localgroupmember set-mppreference | .* |
control | systemctl service rc-service update-rc.d launchctl sc net loginctl nmcli hostnamectl timedatectl | (re|try-re)?start|stop|(re|un)?load|(re|un)?enable|(un)?mask|disable|daemon-reload|edit|link|isolate|kill|revert|suspend|hibernate|reboot|poweroff|halt|set-.+|bootstrap|bootout|submit|remove|kickstart|setenv|defaults|create|delete|config|failure|user|localgroup|up|down|modify|add|connect|on|off|terminate-.+|.+-linger |
control | reg defaults gsettings dconf wmic tccutil netsh ip route ufw firewall-cmd nft security spctl csrutil nvram setx schtasks | add|del|delete.*|write|import|rename|restore|load|copy|re?set|call|flush|change|replace|enable|disable|allow|deny|insert|add-trusted-cert|-[cdf]|[/-]m|[/-](create|delete|change|run|end)|--(add|remove)-.*|--reload|--panic-on|--master-disable |
control | crontab at iptables ip6tables | .* | \A(-t\n.+\n)?-[lsv]|--list
control | ga agentmain.py | .* | \A(--help|-h|--version|help|doctor|sessions|browser\nstatus|schedule\nlist|memory\n(log|show|check))
control | python | (.*\n)*(.*/)?agentmain(\.py)?(\n.*)* | \A(-m\n)?(.*/)?agentmain(\.py)?\n(--help|-h|--version|help|doctor|sessions|browser\nstatus|schedule\nlist|memory\n(log|show|check))
control | mount umount swapon | [^-].* |
control | sysctl | -w|-p|--system|.*=.* |
control | init kill pkill killall | \A[016]\Z|.+\n-1|-u|\.\*?| |
control | start-process saps set-itemproperty new-item ni remove-itemproperty remove-item ri | runas|hk(lm|cu):.* |
control | git | config\n(.*\n)*(--global|--system|(core\.(hookspath|fsmonitor|sshcommand|editor|pager|askpass)|alias\.|credential\.|filter\.|include).*\n.+) | --get.*|get|-l|list|--list
disk | shred wipefs blkdiscard | [^-].* | -n|--no-act
disk | mkfs mkswap fdisk cfdisk gdisk parted sfdisk cgdisk | /dev/.*|.*UNKNOWN.* | -l|--list|print|-v|-p|-i|--print|unit
disk | sgdisk badblocks format cipher | -[zond].*|--[znd].*|-\w*[wn]\w*|[a-z]:|[/-]w.* |
disk | cryptsetup hdparm nvme zpool zfs mdadm vssadmin wbadmin diskutil | (luks)?(format|erase.*)|reencrypt|.*(security|trim).*|sanitize|write-zeroes|destroy|labelclear|--zero-superblock|--stop|delete.*|(partition|zero|random|secureerase|reformat).* |
disk | format-volume clear-disk initialize-disk remove-partition clear-volume lvremove vgremove pvremove diskpart | .* |
push | git | push\n(.*\n)*(-\w*[fd]\w*|--(forc(?!e-if)|mir|del|prun).*|\+.*|:.+) |
fetch | git svn hg docker podman kubectl openssl | clone|fetch|pull|submodule|ls-remote|co|update|export|run|build|compose|login|get|apply|logs|exec|s_client |
fetch | pip pip3 pipx uv poetry conda mamba npm yarn pnpm bun cargo go gem bundle apt apt-get dnf yum apk pacman brew composer winget choco helm huggingface-cli | install|i|ci|add|up|update|upgrade|download|sync|pip|get|mod|fetch|require|source|create|exec|view|dlx|pull|repo|-s\w* |
fetch | aws gcloud gsutil az rclone gh glab mosh ftp lftp npx uvx dig nslookup host whois yt-dlp youtube-dl lynx w3m links elinks chromium google-chrome chrome firefox playwright axel telegram-cli | .* |
send | npm=registry.npmjs.org yarn=registry.npmjs.org pnpm=registry.npmjs.org twine=upload.pypi.org poetry=upload.pypi.org uv=upload.pypi.org cargo=crates.io gem=rubygems.org docker=docker.io podman=docker.io huggingface-cli=huggingface.co | \A(-.*\n)*(\w+\n)?(publish|upload|push) |
send | rclone=rclone | copy|sync|move|copyto |
send | mail=mail mailx=mail sendmail=mail mutt=mail msmtp=mail swaks=mail send-mailmessage=mail telegram-send=api.telegram.org | .* |
send | gh=github.com glab=gitlab.com | \A\w+\n(create|comment|edit|merge|close|delete|upload|review|reopen|rename|fork|transfer|set|ready|lock|run|publish)|api\n(.*\n)*(-x.*|-f|--method.*|--(raw-)?field.*|--input.*) |
send | aws= gsutil= git= | (cp|sync|mv|rsync)\n(.*\n)*(s3|gs)://.*\Z|push\n(-.*\n)*(\w+://|[\w.@-]+:).* |
talk | nc ncat netcat telnet socat | [^-].* | -\w*[lz]\w*|.*listen.*
"""  # fmt: skip


class Ran(NamedTuple):
    """A command that ran before in the pipe. `text`: its output, where that is known, or a mark."""

    name: str
    args: Sequence[str]
    text: str | None = None


class Call(NamedTuple):
    """A command line with its options sorted out: (name without dashes, value), and the words that are none."""

    name: str
    args: Sequence[str]
    options: list[tuple[str, str]]
    rest: list[str]
    feeds: Sequence[Ran] = ()
    stdin: str | None = None

    def has(self, *names: str) -> bool:
        """Whether one of the options is given, a long one perhaps shortened."""
        return any(o in names or (len(o) > 1 and any(name.startswith(o) for name in names)) for o, _ in self.options)

    def value(self, *names: str) -> str:
        """The first value of one of the options, "" if there is none."""
        return next((value for name, value in self.options if name in names and value), "")

    @property
    def given(self) -> str | None:
        """The text on standard input, as far as that is known; NET if some of it comes from there."""
        texts = [feed.text or "" for feed in self.feeds]
        return (
            self.stdin
            if self.stdin is not None
            else NET
            if NET in "".join(texts)
            else self.feeds[-1].text
            if texts
            else None
        )


class Tool(NamedTuple):
    """A row of the table of tools."""

    short: str = ""
    long: Sequence[str] = ()
    method: str = ""
    told: str = ""


@cache
def _tools() -> dict[str, Tool]:
    rows = ([cell.strip() for cell in row.split("|")] for row in _TOOLS.strip().splitlines())
    made = ((names, Tool(short, long.split(), *role.partition(" ")[::2])) for names, short, long, role in rows)
    return {name: tool for names, tool in made for name in names.split()}


@cache
def _rules() -> dict[str, list[tuple[str, str, str, str]]]:
    """By name: effect, what stands behind the name's =, the two patterns."""
    found: dict[str, list[tuple[str, str, str, str]]] = {}
    for row in _RULES.strip().splitlines():
        effect, names, patterns = row.split(" | ", 2)
        pattern, _, unless = (f"(?m)^(?:{one.strip() or '$^.'})$" for one in patterns.rpartition(" |"))
        for name, _, value in (one.partition("=") for one in names.split()):
            found.setdefault(name, []).append((effect, value, pattern.replace("UNKNOWN", UNKNOWN), unless))
    return found


def tool_of(word: str) -> tuple[str, Tool]:
    """The program that a word calls: its name as the tables have it, and its row."""
    name = re.sub(r"\.exe$", "", word.replace("\\", "/").rsplit("/", 1)[-1].lower())
    known = (
        "python" if re.fullmatch(r"(python|pypy)[\d.]*w?|py", name) else re.sub("^(mkfs|newfs|mke2fs).*", "mkfs", name)
    )
    return known, _tools().get(known, Tool())


def sorted_out(name: str, args: Sequence[str], feeds: Sequence[Ran] = (), stdin: str | None = None) -> Call:
    """Options and the rest, as getopt_long(3) of GNU sorts them."""
    tool = _tools().get(name, Tool())
    last = tool.told.split() if tool.method == "code" else ()  # what comes after these is for the script
    call, words = Call(name, args, [], [], feeds, stdin), iter(args)
    for arg in words:
        word = arg
        if word == "--":
            break
        if word.startswith("--"):
            option, *value = re.split("[=:]", word[2:].lower(), maxsplit=1)
            given = arg[3 + len(option) :] if value else next(words, "") if option in tool.long else ""
            call.options.append((option, given))
        elif word.startswith("-") and word != "-":
            at = next((at for at, letter in enumerate(word) if letter in tool.short), len(word))
            call.options.extend((letter, "") for letter in word[1:at])
            if at < len(word):
                call.options.append((word[at], arg[at + 1 :] or next(words, "")))
        else:
            call.rest.append(arg)
            if tool.method in _STOPS:
                break
        if call.options and call.options[-1][0] in last:
            break
    call.rest.extend(words)
    return call


def show(text: str) -> str:
    """For people: marks as `…`, white space in one."""
    return " ".join(re.sub(f"{HIDDEN}+", "…", text.replace(FRESH, "(a new temporary folder)")).split())


def _all_of(path: Path, whole: bool) -> str:
    return say("does_all_of", what=path) if whole else str(path)


def decoded(text: str, coding: str = "utf-8") -> str:
    """What base64 holds; CODED if that cannot be known or is no text."""
    try:
        return base64.b64decode(text + "==").decode(coding)
    except (binascii.Error, ValueError):
        return CODED


@dataclass
class Effects:
    """Collects what commands would do. The rooms for the answers are dicts, so that order is kept and nothing comes twice."""

    zones: Zones
    cwd: str | None
    home: str
    environ: Mapping[str, str]
    resolve: Callable[[Path], Path]
    read: Callable[[Path], str | None]
    destroys: dict[str, str] = field(default_factory=dict)  # what is told → the real path or the command it is about
    sends: dict[str, None] = field(default_factory=dict)
    hosts: dict[str, None] = field(default_factory=dict)
    control: dict[str, str] = field(default_factory=dict)
    parts: dict[str, None] = field(default_factory=dict)
    writes: dict[str, None] = field(default_factory=dict)
    fetches: bool = False
    opaque: bool = False
    written: dict[str, str] = field(default_factory=dict)  # what is in the files that the script itself wrote
    left: int = 4_000  # how much will still be looked at: two for a command, one for a path and for 500 characters
    depth: int = 0  # scripts in scripts, functions in functions, sudo env nice …

    def bash(self, text: str, args: Sequence[str] = (), feeds: Sequence[Ran] = ()) -> object:
        """Look through a shell script; `commands` does."""
        raise NotImplementedError

    def script(self, text: str, kind: str, args: Iterable[str] = ()) -> None:
        """Look through a script, or one within the script."""
        for mark, key in ((NET, "net"), (CODED, "decoded")):
            if mark in text:
                self.tell(f"does_run_{key}")
        self.opaque |= re.search(f"[{NET}{CODED}{DATA}]" if kind == "bash" else HIDDEN, text) is not None
        self.left -= 2 + len(text) // 500
        if self.too_much() or len(text) > MAX_CHARS:
            self.suspect(text)
            return
        from . import other_scripts  # which knows us

        if kind in ("python", "code"):
            self.deeper(lambda: (other_scripts.python if kind == "python" else other_scripts.code)(self, text))
        else:
            shell = text if kind == "bash" else other_scripts.as_bash(text, kind)
            self.deeper(lambda: self.bash(shell, [*args]))

    def tell(self, key: str, target: str = "", **values: object) -> None:
        """Something would be destroyed: `target`, a real path or a command, as far as that is known."""
        self.destroys[say(key, **values)] = target

    def suspect(self, text: str) -> None:
        """What can't be followed is searched for words that are rarely innocent."""
        self.opaque = True
        if re.search(_ASKS_THE_NET, text):
            self.fetches, self.sends["unknown-host"] = True, None
        if m := re.search(r"(?m)(?:^|[;&|(]|\s)(sudo|doas|su|crontab|systemctl|launchctl|schtasks)\s[^\n]{0,80}", text):
            self.control[show(m[0])] = show(m[0])
        if m := re.search(_SUSPICIOUS, text):
            self.tell("does_maybe", what=show(m[0])[:100])

    def too_much(self) -> bool:
        """Whether to stop; then it may do anything, and that is said."""
        if over := self.left <= 0 or self.depth >= MAX_DEPTH:
            self.opaque = True
            self.tell("does_too_much")
        return over

    def deeper(self, act: Callable[[], T]) -> T | None:
        """Go into one more script, function, bracket or sudo, unless that is too deep: then nothing more is looked at."""
        if self.too_much():
            return None
        self.depth += 1
        found = act()
        self.depth -= 1
        return found

    # --- paths ---

    def real(self, path: str, follow: bool = True) -> Path | None:
        """The real path, None if it can't be known. Without `follow` a link itself is meant."""
        if re.match(r"[A-Za-z]:", path):
            return Path(path.replace("\\", "/"))
        if not path or (self.cwd is None and not path.startswith("/")):
            return None
        whole = Path(self.cwd or "/") / path
        try:
            itself = not follow and whole.name not in ("..", "")
            return self.resolve(whole.parent) / whole.name if itself else self.resolve(whole)
        except (OSError, ValueError, RuntimeError):  # no such path can be: a NUL, a loop of links
            return None

    def locate(self, text: str, follow: bool = False) -> tuple[Path | None, bool]:
        """The real path that a word names; True: the folder's whole content. (None, False) if it can't be known."""
        self.left -= 1
        if self.too_much() or (text.startswith(FRESH) and ".." in text):
            return None, False
        if text.startswith(FRESH):
            return self.zones.home / "temp" / "new", False
        m = re.search(rf"[*?\[]|{HIDDEN}", text)
        if not m:
            return self.real(text, follow or re.search(r"/\.?$|(^|/)\.\.$|^\.$", text) is not None), False
        start = text.rfind("/", 0, m.start()) + 1
        first, *rest = text[start:].split("/")
        if ".." in rest or re.match(f"[{UNKNOWN}{NET}{DATA}{CODED}]", text):
            return None, False
        folder = self.real(text[:start] or ".")
        pure = all(re.fullmatch(rf"(?:[*?.]|\[[^]]*\]|{HIDDEN})*", name) for name in (first, *rest))
        return (folder, True) if folder is None or pure else (folder / show(first), False)

    def vital(self, path: Path) -> str:
        """Why nobody deletes, moves or hands over this folder in passing, or ""."""
        low = str(path).lower()
        m = re.fullmatch(r"(?:[a-z]:)?[\\/]*(?:([^/]+)(/[^/]+)?)?", low)
        if m and not m[1]:
            return say("why_root")
        own = (
            (self.zones.user, "user"),
            (self.home, "user"),
            (self.zones.workspace, "work"),
            (self.zones.home, "agent"),
        )
        for folder, name in own:
            if f"{folder}/".lower().startswith(f"{low}/"):
                return say(f"why_{name}" if str(folder).lower() == low else f"why_holds_{name}")
        if m and (not m[2] or re.fullmatch(_SYSTEM, m[1])):
            return say("why_home" if m[1] in ("home", "users") else "why_system")
        return ""

    def foreign(self, path: Path | None) -> bool:
        return path is None or self.zones.of(path) not in ("workspace", "temp")

    def delete(self, words: Iterable[str], how: str = "delete") -> None:
        """A recursive delete of each: said unless it stays in the workspace or in the agent's temp folder."""
        for word in words:
            path, whole = self.locate(word)
            if path is None and self.left > 0:
                self.tell(f"does_{how}", what=show(word) or "?", why=say("why_unknown"))
            elif path and (why := self.vital(path) or (say("why_outside") if self.foreign(path) else "")):
                # what a script puts into the path only then may lead elsewhere: no rule is about that
                sure = not re.search(f"[{UNKNOWN}{NET}{DATA}{CODED}]", word)
                self.tell(f"does_{how}", str(path) * sure, what=_all_of(path, whole) if sure else show(word), why=why)

    def write(self, word: str, text: str | None = None, append: bool = False, follow: bool = True) -> None:
        """A file is written, or taken away. `text`: what comes into it, None if that does not change."""
        if re.match(_DEVICE, word):
            self.tell("does_device", show(word), what=show(word))
        path = None if re.match(_NO_FILE, word) else self.locate(word, follow)[0]
        if path is None:
            return
        if text is not None:
            before = self.written.get(str(path)) or self.read(path) or "" if append else ""
            self.written[str(path)] = before + text if len(before) < 200_000 else before
        for one in dict.fromkeys((path, self.locate(word)[0] or path)):
            zone = self.zones.of(one)
            if zone == "protected" or re.match(_SETTING, str(one)):
                self.control[say("does_change_own" if zone == "protected" else "does_change_system", what=one)] = str(
                    one
                )
            if zone in ("outside", "memory"):
                self.writes[str(one)] = None

    def text_of(self, word: str) -> str | None:
        """What is in a file that a word names, None if that cannot be read."""
        path = self.locate(word, follow=True)[0]
        text = NET if path is None and NET in word else self.written.get(str(path))
        return self.read(path) if text is None and path is not None else text

    def file(self, word: str, kind: str = "", args: Iterable[str] = ()) -> None:
        """A script file is run: look into it. Without a kind its name and first line tell that."""
        path = self.locate(word, follow=True)[0]
        if re.match(_OF_THE_SYSTEM, str(path)) and str(path) not in self.written:
            return
        text = self.text_of(word)
        if NET in (text or ""):
            self.tell("does_run_fetched", what=path or "?")
        elif text is None:
            self.opaque = True
        else:
            named = f"{(re.match('#!.{0,80}', text) or [''])[0]} {path}".lower()
            told = next((name for name, pattern in _KINDS.items() if re.search(pattern, named)), "bash")
            self.script(text, told if kind in ("", "bash") else kind, args)

    # --- one command ---

    def command(self, argv: Sequence[str], feeds: Sequence[Ran] = (), stdin: str | None = None) -> Ran:
        """Note what it would do; `feeds` are the commands before it in the pipe, `stdin` the text it is given."""
        self.left -= 2
        if self.too_much():
            return Ran("", argv)
        word, args, (name, tool) = argv[0], argv[1:], tool_of(argv[0])
        short = word.lower().replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".exe")
        if word.lower() not in (short, f"{short}.exe"):
            self.parts[show(" ".join(argv))] = None
        if name in _LOUD or tool.method != "run":
            self.parts[show(" ".join([short, *args]))] = None
        net = self._note(name, args)
        if tool.method == "run":
            return self.deeper(lambda: self._run(sorted_out(name, args, feeds, stdin))) or Ran(name, args)
        self.opaque |= re.search(HIDDEN, word) is not None
        if name not in _tools() and re.search(r"[/\\]", word):
            self.file(argv[0], "", args)
        text = self.act(name, args, feeds, stdin)
        given = "".join([word, *(feed.text or "" for feed in feeds), *args])
        mark = next((mark for mark in (NET, CODED, DATA) if mark in given), None)
        return Ran(name, args, NET if net else mark if text is None else text)

    def act(self, name: str, args: Sequence[str], feeds: Sequence[Ran] = (), stdin: str | None = None) -> str | None:
        """Do as the table says of the tool. Returns what it would print, where that is known, or a mark."""
        method = _tools().get(name, Tool()).method
        found: str | None = getattr(self, f"_{method}")(sorted_out(name, args, feeds, stdin)) if method else None
        return found

    def _note(self, name: str, args: Sequence[str]) -> bool:
        """Go by the rules; True if its output may come from the net."""
        words = [" ".join(arg.lower().split()) for arg in args[:200]]
        said, net = show(" ".join([name, *args]))[:200], False
        hosts = [m[1] for word in words if (m := re.match(URL, word))]
        for effect, host, pattern, unless in _rules().get(name, ()):
            where = "\n".join(words[:4] if effect == "fetch" else words)
            if not re.search(pattern, where) or re.search(unless, where) or re.search(_ASKS_ABOUT, where):
                continue
            if effect == "talk":
                named = [word for word in words if not re.match(r"[-/]|\d+$|stdio", word)]
                hosts = [re.sub(r"^\w+:|:\d+.*", "", word.rpartition("@")[2]) for word in named[:1]]
            if effect == "control":
                self.control[said] = said
            elif effect in ("disk", "push"):
                self.tell(f"does_{effect}", said, what=said)
            elif effect != "fetch":
                self.sends[host or "".join(hosts[-1:])] = None
            if effect in ("fetch", "talk"):
                net = True
                self.net(hosts)
        return net

    def net(self, hosts: Iterable[str]) -> None:
        self.fetches = True
        self.hosts.update(dict.fromkeys(hosts))

    # --- the methods of the table ---

    def _delete(self, call: Call) -> None:
        deep = call.has("r", "R", "s", "recursive", "recurse")
        for word in call.rest or (self.listed(call.feeds) if call.feeds else [UNKNOWN] * deep):
            if deep or ANY in word:
                self.delete([word if deep else f"{word}found"])
            else:
                self.write(word, follow=False)

    def _copy(self, call: Call) -> None:
        into = call.value("t", "target-directory")
        *sources, target = [*call.rest, into] if into else call.rest or [""]
        to = self.locate(target, follow=True)[0]
        for source in sources:
            text = self.written.get(str(self.locate(source, follow=True)[0]))
            if not into:
                self.write(target, text, follow=call.name != "ln")
            if into or len(sources) > 1 or target.endswith("/") or str(to) in (self.cwd, self.home):
                self.write(f"{target.rstrip('/')}/{source.rstrip('/').rsplit('/', 1)[-1]}", text)

    def _vital(self, words: Iterable[str], how: str) -> None:
        for path, whole in map(self.locate, words):
            if path is not None and path != self.zones.workspace and (why := self.vital(path)):
                self.tell(f"does_{how}", str(path), what=_all_of(path, whole), why=why)

    def _move(self, call: Call) -> None:
        self._vital(call.rest[:-1], "move")
        for word in call.rest[:-1]:
            self.write(word, follow=False)
        self._copy(call)

    def _mode(self, call: Call) -> None:
        self._vital(call.rest if call.has("R", "recursive") else (), "chmod")

    def _write(self, call: Call) -> str | None:
        """What touch, tee, dd, sed -i, tar, unzip, Set-Content … write."""
        name, words, text = call.name, call.rest, None
        if name in ("tee", "tee-object", "set-content", "out-file", "add-content"):
            text, words = call.given or UNKNOWN, words if name == "tee" else words[:1]
        elif name == "dd":
            words = [arg[3:] for arg in call.args if arg.startswith("of=")]
        elif name in ("sed", "gsed"):
            words = words[not call.has("e", "f", "expression", "file") :] if call.has("i", "in-place") else []
        elif name in ("tar", "bsdtar", "unzip"):
            flags = "".join([*(option[0] for option, _ in call.options), *call.args[:1]])
            words = [call.value("f", "file") or "".join(words[1:2])] if "c" in flags else []
            if name == "unzip" or "x" in flags:
                words = [call.value("C", "directory", *"d" * (name == "unzip")) or "."]
        for word in words:
            self.write(word, text, call.has("a", "append"))
        return call.given

    def _find(self, call: Call) -> None:
        words, found = [arg for arg in call.args], self.listed([Ran("find", call.args)])
        for i, word in enumerate(words):
            inner = list(call.args[i + 1 : i + 99]) if word in ("-exec", "-execdir", "-ok", "-okdir") else []
            stop = next((j for j, one in enumerate(inner) if one in (";", "+")), len(inner))
            if word == "-delete" or (inner and tool_of(inner[0])[1].method == "delete"):
                self.delete(found, "find")
            elif inner:
                self.command([arg.replace("{}", found[0]) for arg in inner[:stop]])

    def listed(self, feeds: Sequence[Ran]) -> list[str]:
        """The words that a list of files may hold."""
        for feed in reversed(feeds):
            call = sorted_out(feed.name, feed.args)
            folders, narrow = call.rest or ["."], "found" * call.has("filter", "include")
            if feed.text is not None and not re.search(HIDDEN, feed.text):
                return feed.text.split() or [""]
            if feed.name == "find":
                tests = "\n".join(["", *feed.args])
                start = re.split(r"\n(?:-(?![HLP]\n)|[(!]\n)", tests)[0]
                folders = [folder for folder in start.split("\n")[1:] if folder[:1] != "-"] or ["."]
                narrow = "found" * (re.search(_NARROW, tests) is not None)
            elif feed.name in ("git", "grep", "rg", "fd", "fdfind", "ag"):
                folders = [arg for arg in feed.args if arg.startswith(("/", "~", "..", UNKNOWN))] or ["."]
                narrow = "listed"
            elif feed.name not in ("ls", "dir", "gci", "get-childitem"):
                continue
            return [f"{folder.rstrip('/')}/{ANY}{narrow}" for folder in folders]
        return [NET if any(NET in (feed.text or "") for feed in feeds) else UNKNOWN]

    def _git(self, call: Call) -> str | None:
        here, verb = self.cwd, "".join(call.rest[:1])
        inner = sorted_out(f"git-{verb}", call.rest[1:])
        if folder := call.value("C"):
            self.act("cd", [folder])
        if verb == "clone" and (rest := inner.rest):
            self.write(rest[1] if len(rest) > 1 else rest[0].rstrip("/").rsplit("/", 1)[-1].removesuffix(".git"))
        elif verb == "clean" and inner.has("f", "force"):
            where = [*inner.rest, "."] if self.foreign(self.real(".")) else inner.rest
            self.delete([word for word in where if self.foreign(self.real(word))], "git_clean")
        self.cwd = here
        return str(self.zones.workspace) if call.rest == ["rev-parse", "--show-toplevel"] else None

    # --- the net ---

    def _curl(self, call: Call) -> str:
        curl, items = call.name.startswith("curl"), call.name in ("http", "https", "xh")
        method = (call.value("request", "method", *"X" * curl) or "GET").upper()
        sends = method not in ("GET", "HEAD", "OPTIONS") or (curl and call.has("d", "F", "T"))
        sends |= any(re.match("data|form|json|upload-|post-|body|infile", option) for option, _ in call.options)
        words = [word for word in call.rest if not items or not re.fullmatch(r"[A-Z]+|[\w-]*:?=.*", word)]
        sends |= items and any(re.match(r"(POST|PUT|PATCH|DELETE)$|[\w-]+:?=", word) for word in call.rest)
        hosts = [re.sub(r"^\w+://(?:[^/@]*@)?|[/:?#].*", "", word).lower() for word in words]
        hosts = [host for host in hosts if "." in host or host == "localhost"]
        self.net(hosts)
        if sends or any(DATA in word for word in (*words, *(value for _, value in call.options))):
            self.sends.update(dict.fromkeys(hosts or ["unknown-host"]))
        out = call.value("output", "output-document", "outfile", "out", "o" if curl or items else "O")
        into = call.value("output-dir", "directory-prefix", "dir", *"P" * (not curl)) or "."
        if not out and (call.name in ("wget", "wget2", "aria2c") or call.has("O", "remote-name", "remote-name-all")):
            names = [word.partition("?")[0].rstrip("/").rsplit("/", 1)[-1] for word in words]
        else:
            names = [out] if out not in ("", "-") else []
        for name in names:
            self.write(name if into == "." or name.startswith("/") else f"{into}/{name}", NET)
        return NET

    def _remote(self, call: Call) -> str | None:
        """scp, rsync."""
        remotes = [m[1] or m[2] for word in call.rest if (m := re.match(_REMOTE, word))]
        to = call.rest[-1] if call.rest else ""
        there = re.match(_REMOTE, to) is not None
        if any(re.match("del|remove-source", option) for option, _ in call.options):
            self.delete([UNKNOWN if there else f"{to.rstrip('/')}/"], "rsync")
        if there:
            self.sends[remotes[-1]] = None
        else:
            self._copy(call)
        if remotes:
            self.net(remotes)
        return NET if remotes else None

    def _ssh(self, call: Call) -> str:
        host, here, writes = "".join(call.rest[:1]).lower().rpartition("@")[2], self.cwd, dict(self.writes)
        self.net([host])
        if call.feeds or call.stdin:
            self.sends[host] = None
        self.cwd = None
        self.script(" ".join(call.rest[1:]), "bash")
        self.cwd, self.writes = here, writes  # what it writes there is not here
        return NET

    # --- what runs something else ---

    def _piped(self, call: Call, kind: str) -> None:
        """An interpreter that reads its script from standard input."""
        text, names = call.given, [*dict.fromkeys(feed.name for feed in call.feeds)]
        if NET in (text or ""):
            self.tell("does_run_piped", what=" | ".join([*names, call.name]))
        elif text is not None and not re.search(HIDDEN, text):
            self.script(text, kind)
        elif {*names} & {*_DECODERS}:
            self.script(CODED, kind)
        else:
            self.opaque |= names[-1:] not in ([], ["cat"], ["head"], ["tail"])
            for word in (word for feed in call.feeds if feed.name in ("cat", "head", "tail") for word in feed.args):
                self.file(word, kind)

    def _shell(self, call: Call) -> None:
        rest = [*call.args] if call.name in (".", "source") else call.rest
        if call.has("c", "command"):
            self.script("".join(rest[:1]), "bash", rest[2:])
        elif rest and not call.has("s") and rest[0] not in ("-", "/dev/stdin", "/proc/self/fd/0"):
            if not call.has("n"):
                self.file(rest[0], "bash", rest[1:])
        else:
            self._piped(call, "bash")

    def _code(self, call: Call) -> None:
        """python -c, node -e, perl -e, awk …"""
        kind, rest = "python" if call.name == "python" else "code", call.rest[call.rest[:1] == ["run"] :]
        text = call.value(*tool_of(call.name)[1].told.replace("m", "").split())
        if call.name.endswith("awk") and not call.has("f", "file"):
            text = "".join(rest[:1])
        if kind == "python" and (module := call.value("m")):
            self.command([module, *rest], call.feeds, call.stdin)
        elif text:
            self.script(text, kind)
        elif rest and rest[0] != "-":
            self.file(rest[0], kind, rest[1:])
        elif not call.has("h", "help", "V", "v", "version"):
            self._piped(call, kind)

    def _text(self, call: Call) -> None:
        kind = "powershell" if call.name in ("iex", "invoke-expression") else "bash"
        text = " ".join(call.rest[: 1 if call.name == "trap" else None])
        self.opaque |= re.search(HIDDEN, text) is not None
        if text:
            self.script(text, kind)
        else:
            self._piped(call, kind)

    def _su(self, call: Call) -> None:
        self.script(call.value("c", "command"), "bash")

    def _windows(self, call: Call) -> None:
        """cmd /c …, powershell -Command …"""
        line, kind = " ".join(call.args), "cmd" if call.name == "cmd" else "powershell"
        m = re.search(r"(?is)(?:^|\s)(?:--?|/)(co?\w*|k|ec?|enc\w*|fi?\w*)\s+(.*)", line)
        line = re.sub(r"(?i)^(?:-(?:ex\w*|ep|w\w*|v\w*)\s+\S+\s*|[-/]\w+\s*)+", "", line) if not m else m[2]
        if m and m[1][0] in "eE":
            self.script(decoded(line.split()[0], "utf-16-le"), kind)
        elif (m and m[1][0] in "fF") or re.fullmatch(r"\S+\.ps1", line):
            self.file(line.partition(".ps1")[0] + ".ps1", kind)
        elif line.strip(" -"):
            self.script(line, kind)
        else:
            self._piped(call, kind)

    def _cd(self, call: Call) -> None:
        to = call.rest[0] if call.rest else self.home
        path, whole = self.locate(f"{to.rstrip('/')}/") if to != "-" and call.name != "popd" else (None, False)
        self.cwd = None if path is None or whole else str(path)

    def _run(self, call: Call) -> Ran:
        """sudo, env, timeout, xargs …: what they run."""
        name, inner = call.name, call.rest[int(tool_of(call.name)[1].told or 0) :]
        if name == "command" and call.has("v", "V"):
            return Ran(name, call.args, "".join(call.rest))
        if name == "env" and call.has("S"):
            self.script(" ".join(inner), "bash")
            inner = []
        while inner and re.match(r"\w+=|-|$", inner[0]):  # env A=b, start "" /b
            inner = inner[1:]
        if name in ("start-process", "saps"):
            inner = [word for word in inner if not re.match("--(arg|file|verb|wait|nonew|pass)", word.lower())]
        if name in ("xargs", "gxargs", "parallel"):
            given, place = self.listed(call.feeds)[:32], call.value("I", "replace") or "{}"
            placed = [word.replace(place, one) for word in inner for one in (given if place in word else given[:1])]
            inner = placed if any(place in word for word in inner) else inner + given
        return self.command(inner, call.feeds, call.stdin) if inner else Ran(name, call.args, DATA)

    def _print(self, call: Call) -> str | None:
        """What the tool prints, a mark for what cannot be known, None for what is of no interest."""
        name, text, last = call.name, call.given, call.rest[-1] if call.rest else ""
        if name in ("echo", "printf", "write-output"):
            said = " ".join(arg for arg in call.args if not re.fullmatch("-[neE]+", arg))
            return unescaped(said) if name == "printf" or call.has("e") else said
        if name in ("base64", "base32", "xxd", "openssl", "gpg", "rev") and (_DECODING & {*call.args} or name == "rev"):
            return decoded(text) if name == "base64" and text else CODED
        if name == "dirname":
            return (last.rstrip("/").rpartition("/")[0] or "/") if "/" in last else None
        if name in ("realpath", "readlink"):
            return str(self.locate(last)[0] or UNKNOWN)
        known = {"pwd": self.cwd or UNKNOWN, "mktemp": FRESH, "which": last}
        passed = text if text is not None and (not call.rest or NET in text) else DATA
        return known.get(name, passed)
