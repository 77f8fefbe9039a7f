"""What memory is worth: the same task twice, by a model that goes the way it finds: `python benchmarks/evolution.py`.

The model is a pure function of the request. Where the index in the system prompt names a procedure for what is asked, it
reads that and runs the commands in it; where none is named, or one of them fails, it looks, tries, reads the errors and
mends, and stores in the end what it has found. Whether it is the first or the second run it cannot know. As a control the
task is done once more after the memory was taken away.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from harness import Row, home, run_task

from genericagent.scripted import Reply, Tool

MONTH = "2031-05"
REQUEST = f"""Close the month {MONTH} of the shop in this folder: find the till's export, read it, leave out what does not count, \
add up by article, check the sum against the till's control total, write totals.csv, write report.md, pack both into \
close-{MONTH}.tar.gz, look that the archive is whole, and tell me the total."""


def main() -> int:
    rows = evolution()
    for row in rows:
        print(f"| {row.figure} | {row.value:.3g} {row.unit} | {row.reach} | {row.verdict} | {row.note} |")
    return any(row.verdict == "MISSED" for row in rows)


# the folder: where things are, and what is wrong with them, is not in the request

FILES = {
    "README.txt": "The shop's books.\nTo close a month: sh bin/close.sh YYYY-MM\nQuestions: ask in the office, Tuesdays.\n",
    "bin/close.sh": 'echo "close.sh: reads the old till only, which was replaced; see etc/till.ini" >&2\nexit 1\n',
    "etc/till.ini": "[till]\nexport = var/till/%Y/%m.dat\ncontrol = var/till/%Y/%m.sum\nformat = doc/till-format.txt\n"
    "[printer]\nname = front\nwidth = 42\n",
    "doc/till-format.txt": "Export of the till, one line a sale, fields divided by semicolons:\n"
    "day; receipt; article; kind; amount\nAmounts: comma before the cents, point between thousands.\nKinds:\n"
    "N  sale\nR  goods taken back, amount negative\nS  cancelled at the till, not counted\nT  training, not counted\n"
    "The control total holds what counts.\n",
}
ARTICLES = ("Brötchen", "Käse", "Müsli", "Tee", "Kiste Äpfel")


def shop(folder: Path) -> Decimal:
    """Make the folder anew, with three months of sales; returns the right total of MONTH."""
    for old in folder.iterdir():
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    totals = {}
    for month in range(4, 7):
        lines, total = list[str](), Decimal()
        for n in range(60):
            kind = "NNNSNRNTNN"[(3 * n + month) % 10]
            amount = Decimal((n + 1) * 7919 * month % 240_000) / 100 * (-1 if kind == "R" else 1)
            total += amount if kind in "NR" else 0
            written = f"{amount:,.2f}".translate(str.maketrans(",.", ".,"))
            lines.append(f"{n // 2 + 1:02};{1000 + n};{ARTICLES[7 * n % 5]};{kind};{written}\n")
        export = folder / f"var/till/2031/{month:02}.dat"
        export.parent.mkdir(parents=True, exist_ok=True)
        export.write_text("".join(lines), encoding="cp1252")
        export.with_suffix(".sum").write_text(f"{total}\n")
        totals[f"2031-{month:02}"] = total
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return totals[MONTH]


# the model


@dataclass(frozen=True)
class Call:
    name: str
    args: dict[str, Any]
    result: str

    @property
    def ok(self) -> bool:
        return '"status": "error"' not in self.result


def model(body: dict[str, Any], n: int = 0) -> Reply:
    """The answer to a request of the Anthropic API; what number it has does not matter."""
    system, wish, calls = "\n".join(b["text"] for b in body["system"]), _wish(body), _calls(body)
    memory, index = system.split("# Memory (")[1].split(")\n", 1)
    month = (re.search(r"\d{4}-\d\d", wish) or [""])[0]
    procedure = _procedure(index, wish)
    if procedure and all(call.ok for call in calls):
        return _follow(f"{memory}/{procedure}", month, calls)
    return _explore(calls, month) or _store(memory, month, calls) or _answer(calls)


def _wish(body: dict[str, Any]) -> str:
    content = body["messages"][0]["content"]
    return content if isinstance(content, str) else str(content[0]["text"])


def _calls(body: dict[str, Any]) -> list[Call]:
    asked: dict[str, dict[str, Any]] = {}
    calls = []
    for block in (b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"]):
        if block["type"] == "tool_use":
            asked[block["id"]] = block
        elif block["type"] == "tool_result" and block["tool_use_id"] in asked:
            call, content = asked[block["tool_use_id"]], block["content"]
            text = content if isinstance(content, str) else "\n".join(b.get("text", "") for b in content)
            calls.append(Call(call["name"], call["input"], text))
    return calls


def _procedure(index: str, wish: str) -> str | None:
    """The procedure that the index names for such a wish: of the words before the colon, all but one are in it."""
    words = set(re.findall(r"\w+", wish.lower()))
    for when, name in re.findall(r"([^:;\n]+): (\w+_sop\.md)", index):
        wanted = set(re.findall(r"\w{3,}", when.lower()))
        if len(wanted & words) > 1 and len(wanted - words) <= 1:
            return str(name)
    return None


def _follow(procedure: str, month: str, calls: list[Call]) -> Reply:
    text = next((c.result for c in calls if c.args.get("path") == procedure), None)
    if text is None:
        return _do("memory has a procedure for this, I read it", "file_read", path=procedure)
    done = [c.args.get("script") for c in calls]
    for kind, command in re.findall(r"\d\. (python|bash): `(.+)`", text):
        script = command.replace("MONTH", month)
        if script not in done:
            return _do("the next command of the procedure", "code_run", type=kind, script=script)
    return _answer(calls)


def _explore(calls: list[Call], month: str) -> Reply | None:
    """The next step of somebody who does not know the place; None when the work is done."""
    seen, last = "\n".join(c.result for c in calls), calls[-1] if calls else None
    done = json.dumps([c.args for c in calls], ensure_ascii=False)
    run, pack, look = _commands(month)
    if last is None or not any(c.args.get("script") == "ls -R" for c in calls):
        return _do("nothing is known of this folder, I look", "code_run", type="bash", script="ls -R")
    if "README.txt" in seen and "README.txt" not in done:
        return _do("there is a README", "file_read", path="README.txt")
    if (told := re.search(r"To close a month: (.+) YYYY-MM", seen)) and told[1] not in done:
        return _do("it names a script, I try it", "code_run", type="bash", script=f"{told[1]} {month}")
    if hint := next((name for name in re.findall(r"see ([\w./-]+\.\w+)", seen) if name not in done), None):
        return _do("what was said so far names a file", "file_read", path=hint)
    if not (found := re.search(r"export = (\S+)", seen)):
        return None
    data = found[1].replace("%Y", month[:4]).replace("%m", month[5:])
    if data not in done:
        return _do("the exports are there, what is in one?", "code_run", type="bash", script=f"head -5 {data}")
    if '"file_write"' not in json.dumps([c.name for c in calls]):
        return _do("a table with semicolons, I write a script", "file_write", path=SCRIPT, content=PROGRAM)
    ran = [c for c in calls if c.args.get("script") == run]
    if last.args.get("path") == SCRIPT:
        return _do("the script is ready, I run it", "code_run", type="python", script=run)
    if not ran[-1].ok and "UnicodeDecodeError" in ran[-1].result:
        return _patch("not UTF-8: an old till, so cp1252", 'ENCODING = "utf-8"', 'ENCODING = "cp1252"')
    if not ran[-1].ok:
        if (page := re.search(r"format = (\S+)", seen)) and page[1] not in done:
            return _do("the sum differs, I read about the format", "file_read", path=page[1])
        kinds = "".join(re.findall(r"(\w)  .+, not counted", seen))
        return _patch(f"kinds {kinds} are not counted", 'LEFT_OUT = ""', f'LEFT_OUT = "{kinds}"')
    for what, script in (("the sum is right, I pack", pack), ("packed, I look into it", look)):
        if script not in done:
            return _do(what, "code_run", type="bash", script=script)
    return None


SCRIPT = "close_month.py"
PROGRAM = '''"""Close a month of the shop: sums by article, checked against the till's control total."""

import csv
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

ENCODING = "utf-8"
LEFT_OUT = ""


def close(month: str) -> str:
    year, number = month.split("-")
    export = Path(f"var/till/{year}/{number}.dat")
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for _, _, article, kind, amount in csv.reader(export.read_text(ENCODING).splitlines(), delimiter=";"):
        if kind not in LEFT_OUT:
            sums[article] += Decimal(amount.replace(".", "").replace(",", "."))
    total, control = sum(sums.values()), Decimal(export.with_suffix(".sum").read_text())
    if total != control:
        raise SystemExit(f"the sum {total} differs from the control total {control}")
    lines = [f"{article};{value}\\n" for article, value in sorted(sums.items())]
    Path("totals.csv").write_text("".join(lines))
    Path("report.md").write_text(f"# {month}\\n\\n{len(sums)} articles, total {total}\\n")
    return f"total {total}, as the till says"
'''


def _commands(month: str) -> tuple[str, str, str]:
    archive = f"close-{month}.tar.gz"
    return (
        f'import close_month; print(close_month.close("{month}"))',
        f"tar czf {archive} totals.csv report.md",
        f"tar tzf {archive} && cat report.md",
    )


def _store(memory: str, month: str, calls: list[Call]) -> Reply | None:
    """What was hard to find goes into memory: commands that have worked in this task, and why others have not."""
    if not any(c.name == "start_long_term_update" for c in calls):
        return _do("all is done; the way was long, so it is stored", "start_long_term_update")
    if any(c.name == "file_write" and c.args["path"].startswith(memory) for c in calls):
        return None
    worked = [(c.args["type"], c.args["script"]) for c in calls if c.ok and c.name == "code_run"]
    steps = [(kind, script) for kind, script in worked if script in _commands(month)]
    failed = [c.args["script"] for c in calls if not c.ok and c.args["script"] != steps[0][1]]
    found = {key: value for c in calls for key, value in re.findall(r"(\w+) = (\S+)", c.result)}
    patched = [c.args["new_content"] for c in calls if c.name == "file_patch" and c.ok]
    procedure = "\n".join([
        "# Closing a month of the shop", "When: a month has to be summed up, checked and packed. In the shop's folder, code_run:",
        *(f"{n}. {kind}: `{script.replace(month, 'MONTH')}`" for n, (kind, script) in enumerate(steps, 1)),
        f"Pitfalls: {'; '.join(failed).replace(month, 'MONTH')} is out of order. In {SCRIPT}: {', '.join(patched)}, see {found['format']}.", "",
    ])  # fmt: skip
    facts = f"## [SHOP]\n- till: exports {found['export']}, control totals {found['control']}\n"
    pointer = "close a month of the shop: close_month_sop.md; its till: global_mem.txt [SHOP]\n"
    red, user = "# Red lines\n", "## [USER]\n"
    tools = [
        Tool("file_write", {"path": f"{memory}/{SCRIPT}", "content": f"{{{{file:{SCRIPT}:1:{PROGRAM.count(chr(10))}}}}}"}),
        Tool("file_write", {"path": f"{memory}/close_month_sop.md", "content": procedure}),
        Tool("file_patch", {"path": f"{memory}/global_mem.txt", "old_content": user, "new_content": facts + "\n" + user}),
        Tool("file_patch", {"path": f"{memory}/global_mem_insight.txt", "old_content": red, "new_content": pointer + red}),
    ]  # fmt: skip
    missing = tools[:1] if pointer in calls[-1].result else tools  # as start_long_term_update has just shown
    return Reply(
        text="<summary>what memory lacks of script, procedure, facts and pointer goes there</summary>", tools=missing
    )


def _answer(calls: list[Call]) -> Reply:
    total = re.findall(r"total (-?[\d.]+)", "\n".join(c.result for c in calls if c.ok))
    said = f"The month is closed; the total is {total[-1]}." if total else "I could not close the month."
    return Reply(text=f"<summary>this is the end</summary>{said}")


def _do(why: str, tool: str, /, **args: Any) -> Reply:
    return Reply(text=f"<summary>{why}</summary>", tools=[Tool(tool, args)])


def _patch(why: str, old: str, new: str) -> Reply:
    return _do(why, "file_patch", path=SCRIPT, old_content=old, new_content=new)


# the runs


Bodies = list[dict[str, Any]]


def again(work: Path, play: Callable[[], Bodies]) -> Bodies:
    """Do the task in a folder made anew, with memory as it is; the request bodies. SystemExit where the result is wrong."""
    total = shop(work)
    bodies = play()
    with tarfile.open(work / f"close-{MONTH}.tar.gz") as archive:
        report = archive.extractfile("report.md")
        text = report.read().decode() if report else ""
    answer = model(bodies[-1]).text
    if f"total {total}\n" not in text or f"total is {total}." not in answer:
        raise SystemExit(f"the total is {total}, but the report says {text!r}, the model {answer!r}")
    return bodies


def work_of(bodies: Bodies) -> Bodies:
    """The requests before the model begins to store."""
    storing = [any(t.name == "start_long_term_update" for t in model(body).tools) for body in bodies]
    return bodies[: storing.index(True)] if True in storing else bodies


def evolution() -> list[Row]:
    """The second run in parts of the first, and the one after the memory was taken away."""
    from context_cost import Counter, parts

    count = Counter()

    def tokens(bodies: Bodies) -> int:
        read = sum(part.tokens for body in bodies for part in parts(body, count))
        answers = [model(body) for body in bodies]
        return read + sum(count(a.text) + sum(count(t.name) + count(t.raw) + 8 for t in a.tools) for a in answers)

    with home() as folder, home() as work:

        def play() -> Bodies:
            return [r.body for r in run_task(model, REQUEST, "--cwd", str(work), folder=folder).requests]

        first, second = again(work, play), again(work, play)
        shutil.rmtree(folder / "memory")
        third = again(work, play)
    rows = []
    for what, size in (("turns", len), ("tokens", tokens)):
        whole, base, then, without = size(first), size(work_of(first)), size(second), size(third)
        note = f"{then} of {base}, what the first needed before it stored anything ({whole} with that)"
        rows.append(Row(f"same task again, {what} of the first", 100 * then / base, "%", 50, note))
        note = f"{without} of {whole}"
        figure = f"same task with the memory taken away, {what} of the first"
        rows.append(Row(figure, 100 * without / whole, "%", 99, note, least=True))
    return rows


if __name__ == "__main__":
    sys.exit(main())
