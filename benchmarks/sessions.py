"""3,000 saved conversations listed, searched, archived: `python benchmarks/sessions.py [COUNT]`.

Each has 2 to 40 turns of English or Chinese text, a call with its output of 2 KB, and as many records as a real one
(about 90 KB); nine of ten are old enough to be archived, and are. What is called warm has an index; cold, none yet.
"""

from __future__ import annotations

import itertools
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from harness import ROOT, Row, environment, home
from run import HEAD, line

from genericagent import paths
from genericagent.store import archive, search
from genericagent.store.journal import encode

COUNT, RUNS = 3000, 15
DAY = 86400.0
SYLLABLES = [
    "ba",
    "con",
    "de",
    "fi",
    "gra",
    "hel",
    "in",
    "jo",
    "ka",
    "lo",
    "men",
    "nor",
    "op",
    "par",
    "qui",
    "re",
    "sta",
    "ti",
    "un",
    "ver",
    "wa",
    "xi",
    "yo",
    "zen",
]
HANZI = "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说产种面而方后多定行学法所民得经"


class Author:
    """Writes sentences whose words are as unevenly common as in a language; the same ones each time."""

    def __init__(self, seed: int = 1) -> None:
        self.rng = random.Random(seed)
        self.words = ["".join(self.rng.choices(SYLLABLES, k=self.rng.randint(1, 4))) for _ in range(20_000)]
        self.weights = list(itertools.accumulate(1 / (n + 10) for n in range(len(self.words))))

    def text(self, words: int, chinese: bool = False) -> str:
        if chinese:
            return "".join(self.rng.choices(HANZI, k=words * 2)) + "。"
        return " ".join(self.rng.choices(self.words, cum_weights=self.weights, k=words)) + "."

    def session(self, number: int, now: float) -> None:
        at, chinese = now - number * 0.05 * DAY, number % 3 == 0
        id = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(at))}-{number:06x}"
        request = self.text(12, chinese) + (" the rare zebra 斑马 is here" if number % 500 == 7 else "")
        records = [
            {"type": "session", "v": 1, "id": id, "created": at, "cwd": "/home/user", "llm": "model"},
            {"type": "line", "text": f"[USER]: {request}"},
            {"type": "message", "message": {"role": "user", "content": [{"type": "text", "text": request}], "request": True}},
        ]  # fmt: skip
        for turn in range(self.rng.randint(2, 40)):
            said = {"type": "text", "text": f"<summary>{self.text(12, chinese)}</summary>\n{self.text(40, chinese)}"}
            call = {"type": "tool_use", "id": f"t{turn}", "name": "code_run",
                    "input": {"type": "bash", "script": self.text(40)}}  # fmt: skip
            output = self.text(330)
            result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": output}
            memory = {"type": "text", "text": f"<working_memory>\n{self.text(20)}\n</working_memory>"}
            records += [
                {"type": "usage", "input": 1371, "output": 12, "cache_read": 0, "cache_write": 0, "cost": 0.0},
                {"type": "message", "message": {"role": "assistant", "content": [said, call]}},
                {"type": "result", "tool_use_id": f"t{turn}", "content": output},
                {"type": "line", "text": f"[Agent] {self.text(12, chinese)}"},
                {"type": "message", "message": {"role": "user", "content": [result, memory]}},
            ]
        path = paths.sessions() / f"{id}.jsonl"
        path.write_bytes(b"".join(map(encode, records)))
        os.utime(path, (at, at))


def measured(work: Callable[[], object], runs: int = RUNS) -> tuple[float, str]:
    """(median seconds, smallest to largest)."""
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    times.sort()
    return statistics.median(times), f"median of {runs}; {times[0]:.3f} to {times[-1]:.3f}"


def round_after_a_task() -> None:
    (paths.home() / "locks" / "archive.lock").unlink(missing_ok=True)
    archive.now_and_then(time.time())


def command(*args: str) -> None:
    line = [sys.executable, str(ROOT / "agentmain.py"), "sessions", *args]
    subprocess.run(line, check=True, capture_output=True, env=environment(paths.home(), "http://127.0.0.1:9"))


def main() -> int:
    rows = sessions(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT)
    print("\n".join([HEAD, *map(line, rows)]))
    return any(row.verdict == "MISSED" for row in rows)


def sessions(count: int = COUNT) -> list[Row]:
    rows: list[Row] = []

    def row(figure: str, value: float, unit: str, reach: float | None = None, note: str = "") -> None:
        rows.append(Row(figure, value, unit, reach, note))

    with home() as folder:
        os.environ |= {"GA_HOME": str(folder), "GA_LANG": "en"}
        paths.sessions().mkdir()
        now, author = time.time(), Author()
        for number in range(count):
            author.session(number, now)
        value, note = measured(round_after_a_task, 10)
        row("a round of archiving after a task, every ten minutes", value * 1000, "ms", 100, note)
        row("after any other task", measured(lambda: archive.now_and_then(time.time()))[0] * 1000, "ms", 1, "")
        size, began = _size(paths.sessions()), time.perf_counter()
        packed, faults = archive.tidy(now - archive.OLD)
        seconds, size = time.perf_counter() - began, size - _size(paths.sessions())
        assert not faults, faults[0]
        note = f"{packed} of {count}: {size / 1e6:.0f} MB became {_size(paths.archive()) / 1e6:.0f} MB"
        row("archiving one session", seconds / packed * 1000, "ms", None, note)
        row(
            f"listing {count} sessions, cold",
            measured(search.listing, 1)[0],
            "s",
            None,
            "reads each, for its title, once",
        )
        row(f"listing {count} sessions", *_with("s", 0.3, measured(search.listing)))
        row(f"searching {count} sessions, cold", measured(lambda: _search("zebra"), 1)[0], "s", None, "reads all, once")
        mb = (paths.sessions() / "index.db").stat().st_size / 1e6
        row("size of the index", mb, "MB", None, "")
        common, rare = author.words[0], author.words[5000]
        for what, query in (("a rare word", "zebra"), ("the commonest word", common), ("two words", f"{common} {rare}"),
                            ("one character", "的"), ("two characters", "斑马"), ("a beginning", common[:2])):  # fmt: skip
            hits = len(search.search(query, 0, now, 10**6)[0])
            value, note = measured(lambda query=query: _search(query))
            row(f"searching {count} sessions, {what}", value, "s", 0.1, f"{hits} hits; {note}")

        def one_more() -> None:
            author.session(-1, time.time())
            assert _search("zebra")

        row("… after a new session", *_with("s", 0.1, measured(one_more)))
        row("ga sessions, the process", *_with("s", 0.3, measured(command)))
        row("ga sessions WORD, the process", *_with("s", None, measured(lambda: command("zebra"))))
    return rows


def _with(unit: str, reach: float | None, found: tuple[float, str]) -> tuple[float, str, float | None, str]:
    return found[0], unit, reach, found[1]


def _search(query: str) -> list[search.Hit]:
    return search.search(query, 0, time.time())[0]


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


if __name__ == "__main__":
    sys.exit(main())
