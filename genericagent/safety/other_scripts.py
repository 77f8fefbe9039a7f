"""Scripts that are not for a POSIX shell: Python by its syntax tree, PowerShell and cmd in a shell's words, the rest by patterns."""

from __future__ import annotations

import ast
import re
import warnings

from .effects import ANY, DATA, FRESH, HIDDEN, NET, UNKNOWN, URL, Effects, decoded, show

_NET = (
    r"\b(requests|httpx|urllib3?|aiohttp|socket|websockets?|websocket|smtplib|ftplib|paramiko|imaplib|poplib|telnetlib|http\.client|"
    r"playwright|selenium|boto3|urlopen|urlretrieve|pycurl|asyncssh|fabric|httplib2)\b(?!\.(parse|gethostname)\b)"
)
_SENDING = (
    r"(smtplib\.SMTP|paramiko\.|ftplib\.FTP).*|(socket|websocket).*connect.*|"
    r".*\.(post|put|patch|delete|sendmail|send_message|storbinary|storlines|upload_file|put_object|sendall|sendto)"
)
# What a function does, as the command that does the same; of a method (with a dot) the first word is the object.
_AS = {
    name: command.replace("-", " -").split()
    for command, *names in map(str.split, (
        "rm-r shutil.rmtree send2trash.send2trash send2trash distutils.dir_util.remove_tree",
        "rm os.remove os.unlink os.rmdir os.removedirs .unlink .rmdir",
        "mv shutil.move os.rename os.replace os.renames .rename",
        "cp shutil.copy shutil.copy2 shutil.copyfile shutil.copytree",
        "ln os.symlink os.link",
        "touch os.mkdir os.makedirs os.truncate .touch .mkdir .symlink_to .hardlink_to .write_text .write_bytes",
        "sh-c os.system os.popen subprocess.getoutput subprocess.getstatusoutput asyncio.create_subprocess_shell",
        "python-c exec eval",
        "python runpy.run_path",
        "cd os.chdir",
    ))
    for name in names
}  # fmt: skip
_SAME = (  # what they return is about what they are given
    "str", "os.fspath", "os.path.abspath", "os.path.realpath", "os.path.normpath", "shlex.split", "list", "sorted", "set", "reversed", "tuple",
    "compile", "bytes", ".resolve", ".absolute", ".as_posix", ".strip", ".rstrip", ".decode", ".encode", ".read", ".lower", ".json", ".split",
)  # fmt: skip


def python(effects: Effects, text: str) -> None:
    """Look through a Python script; one that does not parse would not run, but is searched all the same."""
    lines = text.splitlines()
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(text)
        spans = [*dict.fromkeys((one.lineno, one.end_lineno) for one in tree.body)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree, spans = ast.Module([], []), [(i, i) for i in range(1, len(lines) + 1)]
        effects.suspect(text)
    effects.parts.update(dict.fromkeys(show("\n".join(lines[start - 1 : end])) for start, end in spans))
    _Python(effects, tree)


class _Python:
    """Names stand for every value that is ever given to them, wherever; a value that can't be computed is UNKNOWN."""

    def __init__(self, effects: Effects, tree: ast.Module) -> None:
        self.effects = effects
        self.names: dict[str, list[ast.expr]] = {}
        self.modules: dict[str, str] = {}
        self.steps = 0  # values looked at; names that are made of each other may be exponentially many
        nodes = list(ast.walk(tree))
        self.functions = {one.name: one for one in nodes if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
        for node in nodes:
            self._bind(node)
        for node in nodes:
            if isinstance(node, ast.Call) and effects.left > 0:  # beyond that all is told to be unknown
                self._call(node)

    def _bind(self, node: ast.AST) -> None:
        for target in getattr(node, "targets", [getattr(node, "target", getattr(node, "optional_vars", None))]):
            for name in ("value", "iter", "context_expr"):
                self._name(target, getattr(node, name, None))
        if isinstance(node, ast.Import | ast.ImportFrom):
            start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                whole = start + alias.name if start or alias.asname else alias.name.partition(".")[0]
                self.modules[alias.asname or whole.rpartition(".")[2]] = whole
                self.effects.fetches |= whole not in ("socket", "urllib") and bool(re.match(_NET, start + alias.name))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.functions:
            names = [arg.arg for arg in self.functions[node.func.id].args.args]
            given = [(word.arg or "", word.value) for word in node.keywords]
            for name, value in [*zip(names, node.args, strict=False), *given]:
                self._name(ast.Name(name), value)

    def _name(self, target: ast.expr | None, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name) and value is not None:
            self.names.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Tuple | ast.List):
            parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
            for i, element in enumerate(target.elts):
                self._name(element, parts[i] if len(parts) == len(target.elts) else value)

    def bound(self, node: ast.expr | None) -> ast.expr | None:
        """What a name stands for first, if it is one."""
        for _ in range(8):
            if isinstance(node, ast.Name) and node.id not in self.modules:
                node = self.names.get(node.id, [node])[0]
        return node

    def dotted(self, node: ast.expr | None, depth: int = 0) -> str:
        """`os.path.join` of the node, with imports under another name undone; a call in it stands as ()."""
        if isinstance(to := self.bound(node), ast.Attribute | ast.Call):
            node = to
        if isinstance(node, ast.Name):
            return self.modules.get(node.id, node.id)
        if depth > 20 or not isinstance(node, ast.Attribute | ast.Call):
            return ""
        if isinstance(node, ast.Attribute):
            return f"{self.dotted(node.value, depth + 1)}.{node.attr}".removeprefix("builtins.")
        called = self.dotted(node.func, depth + 1)
        if called in ("__import__", "importlib.import_module") and node.args:
            return self.first(node.args[0])
        if called == "getattr" and len(node.args) > 1:
            return f"{self.dotted(node.args[0], depth + 1)}.{self.first(node.args[1])}"
        return f"{called}()"

    # --- values ---

    def first(self, node: ast.expr | None) -> str:
        return self.values(node)[0] if node is not None else UNKNOWN

    def values(self, node: ast.expr, depth: int = 0) -> list[str]:
        """All texts that an expression may be, paths included, encoded as words are; [UNKNOWN] if they can't be known."""
        self.steps += 1
        if depth > 30 or self.steps > 50_000:
            return [UNKNOWN]
        found = [value if len(value) < 20_000 else UNKNOWN for value in self._values(node, depth + 1)]
        return list(dict.fromkeys(found))[:16] or [UNKNOWN]

    def _values(self, node: ast.expr, depth: int) -> list[str]:
        match node:
            case ast.Constant(value=value):
                return [(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))]
            case ast.Name(id=name):
                return [value for one in self.names.get(name, [])[:16] for value in self.values(one, depth)]
            case ast.JoinedStr(values=pieces):
                found = [""]
                for piece in pieces:
                    found = [a + b for a in found for b in self.values(piece, depth)][:16]
                return found
            case ast.BinOp(left=left, op=ast.Add() | ast.Div() as op, right=right):
                joined = _join if isinstance(op, ast.Div) else str.__add__
                return [joined(a, b) for a in self.values(left, depth) for b in self.values(right, depth)]
            case ast.BinOp(left=left, op=ast.Mod()):
                return [re.sub("%[sdr]", UNKNOWN, one) for one in self.values(left, depth)]
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items) | ast.BoolOp(values=items):
                return [value for item in items[:16] for value in self.values(item, depth)]
            case ast.IfExp(body=one, orelse=other):
                return self.values(one, depth) + self.values(other, depth)
            case ast.Subscript(value=ast.Attribute(attr="environ"), slice=key):
                return self._environ(key)
            case ast.Attribute(value=ast.Name(id="sys"), attr="executable"):
                return ["python3"]
            case ast.Attribute(value=inner, attr="parent" | "path" | "name" | "text" | "content" as attr):
                return [_parent(one) if attr == "parent" else one for one in self.values(inner, depth)]
            case ast.Starred() | ast.Await() | ast.NamedExpr() | ast.FormattedValue():
                return self.values(node.value, depth)
            case ast.Call():
                return self._result(node, depth)
        return [UNKNOWN]

    def _environ(self, key: ast.expr) -> list[str]:
        known = {**self.effects.environ, "HOME": self.effects.home}
        return [known.get(one, UNKNOWN) for one in self.values(key)]

    def _result(self, node: ast.Call, depth: int) -> list[str]:
        name = self.dotted(node.func)
        last = name.rpartition(".")[2]
        args = [self.values(arg, depth) for arg in node.args[:8]]
        mine = self.values(node.func.value, depth) if isinstance(node.func, ast.Attribute) else [UNKNOWN]
        given = args[0] if args else mine
        if last in ("getcwd", "cwd", "gettempdir") or name.startswith("tempfile."):
            here = {
                "getcwd": self.effects.cwd,
                "cwd": self.effects.cwd,
                "gettempdir": self.effects.environ.get("TMPDIR", "/tmp"),
            }
            return [(here.get(last, FRESH) or UNKNOWN)]
        if re.fullmatch(r"(os\.path|posixpath)\.join|(pathlib\.)?(Pure|Posix)?Path|.*\.joinpath", name):
            found, *others = [mine, *args] if last == "joinpath" else args or [["."]]
            for more in others:
                found = [_join(a, b) for a in found for b in more][:16]
            return found
        if last in ("home", "expanduser"):
            paths = ["~"] if last == "home" else given
            return [re.sub(r"^~(?=/|$)", lambda _: self.effects.home, one) for one in paths]
        if name in ("os.getenv", "os.environ.get") and node.args:
            value = self._environ(node.args[0])
            return args[1] if value == [UNKNOWN] and len(args) > 1 else value
        if last in ("walk", "scandir", "listdir", "rglob", "glob", "iterdir") and not name.startswith("glob."):
            narrow = f"{ANY}found" if last == "rglob" and given[0].strip("*./") else ANY
            return [f"{one}/{given[0] if last == 'glob' else narrow}" for one in (given if name[:3] == "os." else mine)]
        if last == "join" and node.args and isinstance(node.args[0], ast.List | ast.Tuple):
            return [mine[0].join(self.first(item) for item in node.args[0].elts[:64])]
        if last in ("b64decode", "dirname", "iglob", "glob", "format"):
            paths = [re.sub(r"\{[^}]*\}", lambda _: given[0], one) for one in (mine if last == "format" else given)]
            return [
                decoded(one) if last == "b64decode" else _parent(one) if last == "dirname" else one for one in paths
            ]
        if name in _SAME or f".{last}" in _SAME:
            return given if name in _SAME else mine
        return [NET] if re.search(_NET, name) else [DATA] if last in ("open", "read_text", "read_bytes") else [UNKNOWN]

    # --- calls ---

    def _call(self, node: ast.Call) -> None:
        name = self.dotted(node.func)
        last = name.rpartition(".")[2]
        words = {word.arg or "": word.value for word in node.keywords}
        args = [*node.args[:8], *(words[key] for key in ("args", "path", "cmd", "src", "dst", "mode") if key in words)]
        mine = node.func.value if isinstance(node.func, ast.Attribute) else None
        known = _AS.get(name) if name[:1] != "." else None
        if mine is not None and not known and name not in ("io.open", "os.open", "codecs.open"):
            args = [mine, *args]
        if command := known or (_AS.get(f".{last}") if mine is not None else None):
            self._as(command, [self.values(arg) for arg in args])
        elif re.match(r"(subprocess|sh|pty)\.|os\.(exec|spawn|posix_spawn)", name) or last == "create_subprocess_exec":
            self._run(args[1:] if args[:1] == [mine] else args, words, not re.match(r"os\.|asyncio", name))
        elif last == "open" and len(args) > 1 and re.fullmatch("[rbt]*[wax+][rwaxbt+]*", self.first(args[1])):
            self._as(["touch"], [self.values(args[0])])
        elif last == "urlretrieve" and len(node.args) > 1:
            self.effects.write(self.first(node.args[1]), NET)
        if last in ("write", "write_text", "write_bytes") and len(args) > 1 and mine is not None:
            opened, text = self.bound(mine), self.first(args[1])
            where = opened.args[0] if isinstance(opened, ast.Call) and last == "write" and opened.args else mine
            given = NET if NET in text else UNKNOWN if re.search(HIDDEN, text) else text
            self.effects.write(self.first(where), given, append=last == "write")
        if re.search(_NET, name):
            self._net(node, name, last, words)

    def _as(self, command: list[str], args: list[list[str]]) -> None:
        tool, *options = command
        if tool in ("mv", "cp", "ln"):
            self.effects.act(tool, ["--", *args[0], args[1][0]] if len(args) > 1 else [])
            return
        for value in args[0] if args else ():
            self.effects.act(tool, [*options, value] if command == ["python", "-c"] else [*options, "--", value])

    def _run(self, args: list[ast.expr], words: dict[str, ast.expr], one: bool) -> None:
        """subprocess.run …; not `one`: the command is what comes after the mode or the path, in a list or not."""
        here, line = self.effects.cwd, self.bound(args[0]) if args else None
        if "cwd" in words:
            self.effects.act("cd", ["--", self.first(words["cwd"])])
        if isinstance(line, ast.BinOp) and isinstance(line.left, ast.List):
            line = ast.List([*line.left.elts, line.right], ast.Load())
        if not one:
            lists = [arg for arg in args if isinstance(arg, ast.List | ast.Tuple)]
            line = lists[0] if lists else ast.List(args, ast.Load())
        if isinstance(line, ast.List | ast.Tuple) and line.elts and "shell" not in words:
            argv = [self.first(line.elts[0]), *(value for item in line.elts[1:] for value in self.values(item))]
            self.effects.command(argv, [], self.first(words["input"]) if "input" in words else None)
        else:
            for text in self.values(line)[: 1 if "shell" in words else 16] if line is not None else ():
                self.effects.script(text, "bash")
        self.effects.cwd = here

    def _net(self, node: ast.Call, name: str, last: str, words: dict[str, ast.expr]) -> None:
        """What talks to others, as curl would."""
        texts = [value for arg in [*node.args[:4], *words.values()] for value in self.values(arg)[:4]]
        method = words.get("method") or (node.args[0] if node.args and last in ("request", "stream") else None)
        sends: object = re.fullmatch(_SENDING, name) or self.first(method).upper() in ("POST", "PUT", "PATCH", "DELETE")
        sends = sends or {"data", "json", "files", "content"} & {*words} or any(DATA in text for text in texts)
        sends = sends or (last in ("urlopen", "Request") and len(node.args) > 1)
        hosts = [text for text in texts if re.match(URL, text)]
        hosts = hosts or [text for text in texts if sends and re.fullmatch(r"[\w-]+(\.[\w-]+)+", text)]
        self.effects.act("curl", [*["-d", "x"][: 2 * bool(sends)], "--", *hosts[:4]])


def _join(a: str, b: str) -> str:
    return b if b.startswith("/") else f"{a.rstrip('/')}/{b}"


def _parent(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0] or ("/" if path.startswith("/") else ".")


# --- PowerShell and cmd, told in a shell's words: patterns and what stands for them, in this order ---

_POWERSHELL = (
    (r"<#(?:[\s\S]*?#>|[\s\S]*)", ""), (r"`\r?\n", " "), (r"`(.)", r"\1"), (r"\\", "/"), (r"\$(true|false|null)\b", "true"),
    (r"\$\{?(?:env:)?(\w+)\}?", lambda m: f"${{{m[1].upper()}}}"),
    (r"\[[\w.]*IO\.\w+\]::Delete\(", "(ri -r "),
    (r"\[[\w.]*IO\.\w+\]::(?:Write|Append|Create|Copy|Move)\w*\(", "(touch "),
    (r"(?:\(\s*New-Object\s[\w\s.]*Client\s*\)|\$\{\w+\})\.Download\w+\(", "(irm "),
    (r"(?:\(\s*New-Object\s[\w\s.]*Client\s*\)|\$\{\w+\})\.Upload\w+\(", "(irm --body x "),
    (r"foreach\s*\(\s*\$\{(\w+)\}\s+in\s+([^)\n]{0,900})\)", r"for \1 in \2;"),
    (r"(?<=[\w'\")*}])\s*,\s*(?=[\w'\"./~$(-])", " "), (r"(?<=['\"\w}])\s+\+\s+(?=['\"$])", ""),
    (r"(?<=\s)-(?=(?-i:[A-Z][A-Za-z]{2,})|rec|fil|inc|exc|out|uri|met|bod|inf|des|val)", "--"),
    (r"(?m)(^|[;|{(]\s*)&\s+", r"\1"), (r"\(", "$("),
    (r"\$\{(\w+)\}\s*=\s*(?=['\"\d]|\$\{)", r"\1="), (r"\$\{(\w+)\}\s*=\s*([^;\n{}|]+)", r"\1=$(\2)"),
    (r"(?<!\$)\{|(?<!\$\{\w)(?<!\w)\}", "\n"),
)  # fmt: skip
_CMD = (
    (r"\^\r?\n?", ""), (r"(?m)^[ \t]*@?(rem\b|::).*$|^[ \t]*@", ""), (r"(?<![\w/])(rd|rmdir|del|erase)(?=/)", r"\1 "),
    (r"(?<=\s)(?:/[a-z])+(?=[\s:]|$)", lambda m: m[0].replace("/", " -").lower()), (r"\\", "/"), (r"[$`']", r"\\\g<0>"),
    (r"%([a-z]\w*)(?::[^%\n]*)?%", lambda m: f"${{{m[1].upper()}}}"), (r"%~?\w+%?", "$UNKNOWN_"),
    (r"(?m)(^|[&|(]\s*)set\s+\"?(\w+)=([^\"&\r\n]*)\"?", lambda m: f'{m[1]}{m[2].upper()}="{m[3]}"'),
    (r"\bif\s+(/i\s+)?(not\s+)?(exist\s+(\"[^\"\n]*\"|\S+)|defined\s+\S+|errorlevel\s+\d+|\S+\s*==\s*\S+)|\bfor\s[^\n]{0,300}?\sdo\b", ""),
)  # fmt: skip


def as_bash(text: str, kind: str) -> str:
    """A PowerShell or batch script in the words of bash, as far as `commands` has to know them."""
    for pattern, by in _POWERSHELL if kind == "powershell" else _CMD:
        text = re.sub(pattern, by, text, flags=re.IGNORECASE)
    return text


# --- the rest ---

_DOES = r"\b(system|exec(?:Sync|File|FileSync)?|spawn(?:Sync)?|popen|shell_exec|passthru|do shell script|qx|rm\w*|remove\w+|rimraf|emptyDirSync|(?:write|append|copy|rename)File(?:Sync)?|createWriteStream)\b(?:\.sync)?\W{0,4}?(?=[\"'`\w(\[])([^;\n]{0,400})|`([^`\n]{1,300})`"
_EVALUATES = r"\b(eval|new Function|vm\.runIn\w+|instance_eval)\b"
_FETCHING = r"\b(fetch|axios|XMLHttpRequest|https?\.(get|request)|LWP|Net::HTTP|open-uri|curl_exec|file_get_contents\(['\"]http|WebSocket|require\(['\"](https?|net|got|undici|node-fetch))\b"
_POSTING = r"(?i)method['\"]?\s*:\s*['\"](POST|PUT|PATCH|DELETE)|\.(post|put|patch)\(|body\s*:|Net::HTTP\.post"


def code(effects: Effects, text: str) -> None:
    """JavaScript, Perl, Ruby, PHP, awk … by what they call with a literal."""
    effects.parts[show(text)] = None
    for does, rest, shell in re.findall(_DOES, text):
        words = [(two[1] or two[2]) for two in re.findall(r"(\"((?:[^\"\\]|\\.)*)\"|'([^']*)')", rest)]
        if "File" in does or "Stream" in does:
            effects.act("touch", ["--", *words[:1]])
        elif does[:2] not in ("rm", "re", "ri", "em"):
            effects.script((" ".join(words) if does else shell).replace('\\"', '"'), "bash")
        elif "recursive" in rest or does not in ("rmSync", "rmdirSync", "rm", "removeEventListener"):
            effects.delete(words[:1] or [effects.home if re.search("homedir|HOME", rest) else UNKNOWN])
    effects.opaque |= re.search(_EVALUATES + r"\s*\(\s*[^'\")\s]", text) is not None
    if re.search(_FETCHING, text):
        hosts = [host.lower() for host in re.findall(r"(?:https?|wss?)://([^/:?#\s'\"`]+)", text)]
        effects.act("curl", [*["-d", "x"][: 2 * bool(re.search(_POSTING, text))], "--", *hosts])
        if re.search(_EVALUATES, text):
            effects.tell("does_run_net")
