"""What survives kill -9, damaged files and full disks: `python benchmarks/durability.py [--seed N] [NAME …]`.

kills     the real program is killed at random moments of a 20-turn task and resumed to its end
mutated   journals are damaged at random and opened
appends   processes write to one ledger at once, and want one journal at once
faults    each call that writes fails in turn: full disk, I/O error, no permission, half a write

Every figure counts failures, so 0 is what to reach. tests/crash runs smaller editions.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from harness import ROOT, Row, environment, home

from genericagent.errors import GAError
from genericagent.scripted import Reply, ScriptedServer, Tool
from genericagent.store import atomic
from genericagent.store.journal import UNKNOWN, Journal, encode, find, history_from, read
from genericagent.store.ledger import Ledger

TURNS = 20
MARK = re.compile(r"m-\d\d-[ab]")
EFFECTS = "effects.txt"  # in the workspace: each tool call adds its mark
UNSURE = UNKNOWN.partition(":")[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", help=f"some of {', '.join(FIGURES)} (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    missed = False
    for name in args.name or FIGURES:
        for row in FIGURES[name](args.seed):
            missed |= row.verdict == "MISSED"
            print(
                f"| {row.figure} | {row.value:g} {row.unit} | ≤ {row.reach} | {row.verdict} | {row.note} |", flush=True
            )
    return missed


def durability(seed: int = 1) -> Iterator[Row]:
    for figure in FIGURES.values():
        yield from figure(seed)


# kills


def turn(number: int) -> list[Tool]:
    """The calls of a turn: appends by bash, Python and file_write, quick and slow ones, two at once."""
    a, b = f"m-{number:02}-a", f"m-{number:02}-b"
    bash = Tool("code_run", {"type": "bash", "script": f"echo {a} >> {EFFECTS}"})
    python = Tool("code_run", {"type": "python", "script": f"open({EFFECTS!r}, 'a').write('{a}\\n')"})
    slow = Tool("code_run", {"type": "bash", "script": f"sleep 0.05; echo {a} >> {EFFECTS}; sleep 0.05"})
    write = Tool("file_write", {"path": EFFECTS, "content": f"{a}\n", "mode": "append"})
    second = Tool("file_write", {"path": EFFECTS, "content": f"{b}\n", "mode": "append"})
    return [[bash], [write], [python], [bash, second], [slow]][number % 5]


ALL_MARKS = [MARK.findall(tool.raw)[0] for number in range(TURNS - 1) for tool in turn(number)]


def careful_model(body: dict[str, Any], n: int) -> Reply:
    """Goes on where the conversation stands. Of a call with unknown outcome it looks first whether it has worked; of
    turns that were cut from the context their lines say that they are done."""
    calls: dict[str, str] = {}
    done, unknown = set[str](), set[str]()
    for block in _blocks(body["messages"]):
        if block["type"] == "tool_use":
            calls[block["id"]] = next(iter(MARK.findall(json.dumps(block["input"]))), "")
        elif block["type"] == "tool_result":
            mark, said = calls[block["tool_use_id"]], json.dumps(block["content"])
            if not mark and UNSURE not in said:
                done |= unknown & set(MARK.findall(said))
                unknown.clear()
            elif mark:
                (unknown if UNSURE in said else done).add(mark)
        elif "<earlier_turns>" in block["text"]:
            for number in re.findall(r"^\[Agent\] turn (\d+)$", block["text"], re.M):
                done |= {MARK.findall(tool.raw)[0] for tool in turn(int(number))}
    if unknown:
        look = {"type": "bash", "script": f"cat {EFFECTS} || true"}
        return Reply(text="<summary>look what has happened</summary>", tools=[Tool("code_run", look)])
    for number in range(TURNS - 1):
        todo = [tool for tool in turn(number) if MARK.findall(tool.raw)[0] not in done]
        if todo:
            return Reply(text=f"<summary>turn {number}</summary>", tools=todo)
    return Reply(text="All is done.")


def _blocks(messages: list[Any]) -> Iterator[dict[str, Any]]:
    for message in messages:
        if isinstance(message["content"], list):
            yield from message["content"]


def _said(messages: list[Any]) -> set[tuple[str, str]]:
    """What of a conversation must not be lost: requests, calls and the results of calls."""
    found = set()
    for block in _blocks(messages):
        if block["type"] == "tool_use":
            found.add(("call", f"{block['id']} {json.dumps(block['input'])}"))
        elif block["type"] == "tool_result":
            found.add(("result", f"{block['tool_use_id']} {json.dumps(block['content'])}"))
        elif block["text"].endswith(" please"):
            found.add(("request", block["text"]))
    return found


@dataclass
class Kill:
    """One run that was killed and resumed. `lost` acknowledged records, `doubled` effects, `missing` effects."""

    at: str
    resumed: bool = False
    unknown: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def kill_and_resume(rng: random.Random) -> Kill:
    """Kill the program a random moment after a random request, look at its journal, and let it go on to the end."""
    number, delay = rng.randrange(TURNS), rng.uniform(0, 0.1)
    kill = Kill(f"request {number} + {delay * 1000:.0f} ms")
    reached = threading.Event()

    def model(body: dict[str, Any], n: int) -> Reply:
        if n == number:
            reached.set()
        reply = careful_model(body, n)
        reply.pace = 0.002  # so that the program is also killed inside an answer
        return reply

    with home() as folder, ScriptedServer(model) as server:
        env = environment(folder, server.url)
        shown = folder / "shown"
        with shown.open("wb") as out:
            program = _start(env, out, "-p", "all of it please", "--output-format", "stream-json")
            if not reached.wait(60):
                program.kill()
                raise SystemExit(f"the program never came to {kill.at}: {shown.read_text()}")
            time.sleep(delay)
            os.kill(program.pid, signal.SIGKILL)
            program.wait()
        _wait_for_children(folder)
        path = find(folder / "sessions")
        _compare(kill, path, [*server.requests][-1].body["messages"], shown, _effects(folder))
        before = len(server.requests)
        with (folder / "resumed").open("wb") as out:
            program = _start(env, out, "-p", "go on please", "--resume", path.stem)
            code = program.wait(120)
        said = (folder / "resumed").read_text(encoding="utf-8")
        kill.resumed = code == 0 and "All is done." in said and len(server.requests) > before
        count = Counter(_effects(folder))
        kill.doubled = [mark for mark in count if count[mark] > 1]
        kill.missing = [mark for mark in ALL_MARKS if mark not in count]
    return kill


def _start(env: dict[str, str], out: Any, *args: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(ROOT / "agentmain.py"), *args]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=env["GA_HOME"]
    )


def _compare(kill: Kill, path: Path, asked: list[Any], shown: Path, effects: list[str]) -> None:
    """What the journal must hold: what the last request told the model, what was shown, each call that had an effect."""
    records = read(path).records
    restored = history_from(records)
    kept = _said(restored.history)
    kill.unknown = len(restored.unknown)
    kill.lost += [f"{kind} {text}" for kind, text in _said(asked) - kept]
    calls = {mark for kind, text in kept if kind == "call" for mark in MARK.findall(text)}
    kill.lost += [f"call of the effect {mark}" for mark in effects if mark not in calls]
    lines = [line for line in shown.read_bytes().split(b"\n")[:-1] if line.startswith(b"{")]
    events = [json.loads(line).get("event") or {} for line in lines]
    seen = {mark for e in events if e.get("kind") == "tool" for mark in MARK.findall(json.dumps(e["args"]))}
    kill.lost += [f"shown call {mark}" for mark in seen - calls]
    ended = sum(e.get("kind") == "tool_done" for e in events)
    results = sum(kind == "result" and UNSURE not in text for kind, text in kept)
    kill.lost += [f"shown result {n}" for n in range(results, ended)]


def _effects(folder: Path) -> list[str]:
    file = folder / "temp" / EFFECTS
    return MARK.findall(file.read_text(encoding="utf-8")) if file.exists() else []


def _wait_for_children(folder: Path, seconds: float = 20) -> None:
    """Until the tools that outlived the killed program have ended: a look at their effects must not come too early."""
    end = time.monotonic() + seconds
    while any(_works_in(process, folder) for process in Path("/proc").glob("[0-9]*")):
        if time.monotonic() > end:
            raise SystemExit(f"a tool still runs in {folder} after {seconds:g} s")
        time.sleep(0.01)


def _works_in(process: Path, folder: Path) -> bool:
    try:
        return (process / "cwd").readlink().is_relative_to(folder)
    except OSError:
        return False


def kills(seed: int, count: int = 200) -> Iterator[Row]:
    rng = random.Random(seed)
    done = [kill_and_resume(rng) for _ in range(count)]
    cut = sum(bool(kill.unknown) for kill in done)
    yield _row(f"kill -9, of {count} not resumed to the end", "runs", [k.at for k in done if not k.resumed])
    yield _row("acknowledged records lost", "records", [f"{k.at}: {lost}" for k in done for lost in k.lost])
    yield _row("tool effects doubled", "effects", [f"{k.at}: {mark}" for k in done for mark in k.doubled],
               f"{cut} kills hit a running tool")  # fmt: skip
    yield _row("tool effects missing", "effects", [f"{k.at}: {mark}" for k in done for mark in k.missing])


def _row(figure: str, unit: str, failures: list[str], note: str = "") -> Row:
    return Row(figure, len(failures), unit, 0, f"first: {failures[0]}" if failures else note)


# mutated journals


def sample_records(rng: random.Random) -> list[dict[str, Any]]:
    """A conversation: texts in several scripts, control characters, a long result, calls with and without results."""
    texts = ["hello", "问题一二三", "\x1b[31m\0\u2028", 'quotes " and {"crc":"', "x" * 20_000, "é\U0001f600"]
    records: list[dict[str, Any]] = [{"type": "line", "text": "[USER]: all of it"}]
    for n in range(12):
        text = {"type": "text", "text": f"{n} {rng.choice(texts)}"}
        use = {"type": "tool_use", "id": f"t{n}", "name": "code_run", "input": {"script": rng.choice(texts)}}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": rng.choice(texts)}
        records.append({"type": "message", "message": {"role": "assistant", "content": [text, use]}})
        records.append({"type": "result", "tool_use_id": f"t{n}", "content": result["content"]})
        records.append({"type": "message", "message": {"role": "user", "content": [result]}})
    return records


def mutated(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """One to three kinds of damage. `other` is a second journal."""
    for _ in range(rng.randint(1, 3)):
        data = rng.choice(DAMAGE)(data, other, rng)
    return data


def _range(data: bytes, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice([1, 8, 100, 4096]))


def _flip(data: bytes, other: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 5])):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _truncated(data: bytes, other: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) // 2, len(data))]


def _doubled(data: bytes, other: bytes, rng: random.Random) -> bytes:
    start, end = _range(data, rng)
    return data[:end] + data[start:]


def _deleted(data: bytes, other: bytes, rng: random.Random) -> bytes:
    start, end = _range(data, rng)
    return data[:start] + data[end:]


def _zeroed(data: bytes, other: bytes, rng: random.Random) -> bytes:
    start, end = _range(data, rng)
    return data[:start] + b"\0" * (end - start) + data[end:]


def _reordered(data: bytes, other: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    rng.shuffle(lines)
    return b"".join(lines)


def _crlf(data: bytes, other: bytes, rng: random.Random) -> bytes:
    return data.replace(b"\n", b"\r\n")


def _nuls(data: bytes, other: bytes, rng: random.Random) -> bytes:
    at = rng.choice([0, len(data), rng.randrange(len(data))])
    return data[:at] + b"\0" * rng.choice([1, 1000, 100_000]) + data[at:]


def _giant(data: bytes, other: bytes, rng: random.Random) -> bytes:
    at = rng.choice([0, data.find(b"\n") + 1, len(data), rng.randrange(len(data))])
    return data[:at] + rng.choice([b"x", b"[", b'{"crc":"', b"9"]) * 100_000 + data[at:]


def _merged(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """The first part of one file and the rest of another, as after a wrong synchronisation."""
    first, second = (data, other) if rng.random() < 0.5 else (other, data)
    return first[: rng.randrange(len(first))] + second[rng.randrange(len(second) // 2) :]


DAMAGE: list[Callable[[bytes, bytes, random.Random], bytes]] = [
    _flip, _truncated, _doubled, _deleted, _zeroed, _reordered, _crlf, _nuls, _giant, _merged,
]  # fmt: skip


def samples(folder: Path, rng: random.Random) -> tuple[bytes, bytes]:
    """The bytes of two journals."""
    whole = []
    for name in ("one", "two"):
        journal = Journal.create(folder, name, {"cwd": "/"}, lambda: 1.0)
        for record in sample_records(rng):
            journal.append(record, sync=False)
        journal.close()
        whole.append(journal.path.read_bytes())
    return whole[0], whole[1]


def open_mutated(folder: Path, whole: tuple[bytes, bytes], rng: random.Random) -> str:
    """Damage a journal and open it. What went wrong, or ""."""
    lines = {line for text in whole for line in text.splitlines()}
    intact, data = set[bytes](), b""
    while not intact:  # a file without one is no session
        data = mutated(*whole, rng)
        intact = {line for line in lines if line in data}
    path = folder / f"damaged-{rng.random()}.jsonl"
    path.write_bytes(data)
    try:
        journal, records, _ = Journal.open(path)
    except GAError as error:
        return f"not opened, {len(intact)} intact records: {error}"
    history_from(records)
    lost = intact - {encode(record).rstrip() for record in records}
    journal.append({"type": "line", "text": "afterwards"})
    journal.close()
    again = read(path).records
    if again != [*records, {"type": "line", "text": "afterwards"}]:
        return "the next record does not stand behind the others"
    return f"{len(lost)} intact records lost: {min(lost)[:80]!r}" if lost else ""


def mutations(seed: int, count: int = 500) -> Iterator[Row]:
    rng = random.Random(seed)
    with home() as folder:
        whole = samples(folder, rng)
        found = [open_mutated(folder, whole, rng) for _ in range(count)]
    yield _row(f"mutated journals, of {count} not opened with every intact record", "files", [f for f in found if f])


# appends

SPEND = """
import sys
from pathlib import Path
from genericagent.store.ledger import Ledger
ledger = Ledger(Path(sys.argv[1]), lambda: 1_800_000_000.0)
print("ready", flush=True)
sys.stdin.readline()
for n in range(int(sys.argv[2])):
    ledger.settle(f"{sys.argv[3]}-{n}", 0.25, {"input": 1, "output": 1, "cache_read": 0, "cache_write": 0})
"""
HOLD = """
import sys
from pathlib import Path
from genericagent.errors import SessionError
from genericagent.store.journal import Journal
print("ready", flush=True)
sys.stdin.readline()
try:
    Journal.open(Path(sys.argv[1]))
    print("mine", flush=True)
except SessionError as error:
    print(error, flush=True)
sys.stdin.readline()
"""


def together(code: str, count: int, arguments: Callable[[int], list[str]]) -> list[str]:
    """Run the code in `count` processes that begin at once; the line that each says, or ""."""
    pipe = subprocess.PIPE
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, *arguments(n)], stdin=pipe, stdout=pipe, encoding="utf-8", cwd=ROOT
        )
        for n in range(count)
    ]
    try:
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()
        for process in running:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [process.stdout.readline().strip() for process in running if process.stdout]
        for process in running:
            process.communicate("end\n", timeout=60)
    finally:
        for process in running:
            process.kill()
            process.wait()
    return said


def appends(seed: int, processes: int = 8, each: int = 200) -> Iterator[Row]:
    with home() as folder:
        together(SPEND, processes, lambda n: [str(folder / "spend"), str(each), str(n)])
        wanted = {f"{p}-{n}" for p in range(processes) for n in range(each)}
        (file,) = (folder / "spend").glob("*.jsonl")
        lines = [json.loads(line)["settle"] for line in file.read_text(encoding="utf-8").splitlines()]
        day = Ledger(folder / "spend", lambda: 1_800_000_000.0).today()
        wrong = sorted(wanted.symmetric_difference(lines)) + ["one twice"] * (len(lines) != len(wanted))
        wrong += ["the sum"] * (day.cost != 0.25 * len(wanted))
        yield _row(f"{processes} × {each} appends to the ledger, lines missing or torn", "lines", wrong)
        journal = Journal.create(folder / "sessions", "one", {"cwd": "/"})
        journal.close()
        said = together(HOLD, processes, lambda n: [str(journal.path)])
        refused = [line for line in said if "in use by process" in line]
        wrong = [line for line in said if line != "mine" and line not in refused]
        wrong += ["two have it"] * abs(len(said) - len(refused) - 1)
        yield _row(f"{processes} openers of one session, neither the one nor refused", "processes", wrong)


# faults

CALLS = ("open", "write", "fsync", "replace", "rename", "ftruncate", "chmod", "mkdir", "unlink", "lseek", "fstat")


class Fault:
    """The nth call of any of CALLS fails with `code`; 0: from the nth on each write takes half of its bytes."""

    def __init__(self, nth: int, code: int) -> None:
        self.nth, self.code, self.calls = nth, code, 0
        self.hit = ""

    def wrap(self, name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*args: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls < self.nth or self.code and self.calls > self.nth:
                return real(*args, **named)
            self.hit = self.hit or name
            if self.code:
                raise OSError(self.code, os.strerror(self.code))
            if name == "write":
                args = (args[0], args[1][: max(1, len(args[1]) // 2)])
            return real(*args, **named)

        return call

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for name in CALLS:
                stack.enter_context(mock.patch.object(os, name, self.wrap(name)))
            yield


def _replaced(folder: Path, fault: Fault) -> str:
    """A file that is replaced is old or new, and nothing lies beside it."""
    file, old, new = folder / "f", b"old " * 500, b"the new content " * 700
    file.write_bytes(old)
    told = _told(fault, lambda: atomic.write_bytes(file, new))
    if file.read_bytes() != (old if told else new):
        return f"a mix, or not what was told: {told!r}"
    rest = [p.name for p in folder.iterdir() if p != file]
    return f"left behind: {rest}" if rest and fault.hit != "unlink" else ""


def _appended(folder: Path, fault: Fault) -> str:
    """A journal has the record or not, and takes the next one."""
    journal = Journal.create(folder, "one", {"cwd": "/"}, lambda: 1.0)
    before = read(journal.path).records
    record, after = {"type": "line", "text": "x" * 5000}, {"type": "line", "text": "after"}
    told = _told(fault, lambda: journal.append(record))
    journal.append(after)
    journal.close()
    kept = read(journal.path).records
    return "" if kept == [*before, *([] if told else [record]), after] else f"{len(kept)} records, told {told!r}"


def _begun(folder: Path, fault: Fault) -> str:
    """A session is there or not; then its name is free."""
    made: list[Journal] = []
    told = _told(fault, lambda: made.append(Journal.create(folder / "s", "one", {"cwd": "/"}, lambda: 1.0)))
    for journal in made:
        journal.close()
    if told and fault.hit != "unlink" and (folder / "s" / "one.jsonl").exists():
        return f"a file is there, told {told!r}"
    return "" if told or len(read(folder / "s" / "one.jsonl").records) == 1 else "no session"


def _spent(folder: Path, fault: Fault) -> str:
    """A line of the ledger counts or not; the next one does."""
    tokens = {"input": 1, "output": 1, "cache_read": 0, "cache_write": 0}
    ledger = Ledger(folder / "spend", lambda: 1_800_000_000.0)
    ledger.settle(None, 1.0, tokens)
    told = _told(fault, lambda: ledger.settle(None, 2.0, tokens))
    ledger.settle(None, 4.0, tokens)
    cost = Ledger(folder / "spend", lambda: 1_800_000_000.0).today().cost
    return "" if cost == ledger.today().cost and cost in ([5.0, 7.0] if told else [7.0]) else f"{cost}, told {told!r}"


def _token(folder: Path, fault: Fault) -> str:
    """A token file holds a whole token that stays, or there is none."""
    from genericagent.safety.listener import token_file

    found: list[str] = []
    told = _told(fault, lambda: found.append(token_file(folder / "t")))
    token = token_file(folder / "t")
    return (
        "" if len(token) >= 43 and (told or found == [token]) and token == token_file(folder / "t") else "another one"
    )


def _told(fault: Fault, action: Callable[[], object]) -> str:
    """The error that the action ended with, or ""."""
    with fault.active():
        try:
            action()
        except GAError as error:
            return str(error)
    return ""


WRITERS = [_replaced, _appended, _begun, _spent, _token]


def every_fault() -> tuple[int, list[str]]:
    """(how many faults there were, what went wrong)."""
    count, wrong = 0, []
    for write in WRITERS:
        for code in (errno.ENOSPC, errno.EIO, errno.EACCES, 0):
            nth = 1
            while True:
                fault = Fault(nth, code)
                with tempfile.TemporaryDirectory(prefix="ga-bench-") as folder:
                    try:
                        why = write(Path(folder), fault)
                    except (GAError, OSError) as error:
                        why = f"{type(error).__name__}: {error}"
                if not fault.hit:
                    break
                count, nth = count + 1, nth + 1
                if why:
                    name = errno.errorcode[code] if code else "short writes"
                    wrong.append(f"{write.__name__}, {name} at {fault.hit}, call {nth - 1}: {why}")
    return count, wrong


def faults(seed: int) -> Iterator[Row]:
    count, wrong = every_fault()
    yield _row(f"{count} faults at each call, neither old nor new", "files", wrong)


FIGURES: dict[str, Callable[[int], Iterator[Row]]] = {
    "kills": kills, "mutated": mutations, "appends": appends, "faults": faults,
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main())
